#include "preprocessor_config.h"

#include <cmath>
#include <string>

#include "caravan/core/error.h"
#include "caravan/core/json_reader.h"
#include "source_parts.h"
#include "text_files.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t kBilinear = 2;  // Pillow's number
constexpr double kTolerance = 1e-6;

[[noreturn]] void refuse(const JsonReader& json, const char* name, const std::string& expected) {
  throw InputError(fmt::format(
      "{}: \"{}\" is {}, expected {}: images of this model are prepared in another way than "
      "Llama 3.2 Vision's",
      json.where(), name, short_json(*json.find(name)), expected));
}

void check_size(const JsonReader& json, std::int64_t tile_size) {
  const auto size = json.object("size");
  if (!size) return;
  for (const char* side : {"height", "width"}) {
    const auto found = size->integer(side);
    CARAVAN_CHECK(!found || *found == tile_size, InputError,
                  "{}: \"{}\" is {}, but config.json says tiles of {} pixels (image_size)",
                  size->where(), side, *found, tile_size);
  }
}

void check_colours(const JsonReader& json, const char* name, const std::array<float, 3>& expected) {
  const Json* found = json.find(name);
  if (found == nullptr) return;
  bool same = found->is_array() && found->size() == expected.size();
  for (std::size_t i = 0; same && i < expected.size(); ++i) {
    same = (*found)[i].is_number() &&
           std::abs((*found)[i].get<double>() - double{expected[i]}) < kTolerance;
  }
  if (!same) refuse(json, name, fmt::format("[{}]", fmt::join(expected, ", ")));
}

void check_fields(const JsonReader& json, const model::VisionConfig& vision) {
  const std::string type = json.text("image_processor_type").value_or("MllamaImageProcessor");
  if (!type.starts_with("MllamaImageProcessor"))
    refuse(json, "image_processor_type", "\"MllamaImageProcessor\"");
  for (const char* step : {"do_convert_rgb", "do_normalize", "do_pad", "do_rescale", "do_resize"}) {
    if (!json.boolean(step).value_or(true)) refuse(json, step, "true");
  }
  check_size(json, vision.tile_size);
  check_colours(json, "image_mean", model::kPixelMean);
  check_colours(json, "image_std", model::kPixelDeviation);
  if (json.integer("max_image_tiles").value_or(model::kMaxTiles) != model::kMaxTiles)
    refuse(json, "max_image_tiles", std::to_string(model::kMaxTiles));
  if (json.integer("resample").value_or(kBilinear) != kBilinear)
    refuse(json, "resample", fmt::format("{} (bilinear)", kBilinear));
  if (std::abs(json.real("rescale_factor").value_or(1.0 / 255) - 1.0 / 255) > kTolerance / 255)
    refuse(json, "rescale_factor", "1 / 255");
}

}  // namespace

void check_preprocessor(const std::vector<fs::path>& places, const model::VisionConfig& vision) {
  for (const fs::path& place : places) {
    for (const char* name : {"preprocessor_config.json", "processor_config.json"}) {
      const fs::path path = find_file({place}, name);
      if (path.empty()) continue;
      const Json parsed = parse_json(read_small_file(path, kMaxConfigBytes), path.string());
      const JsonReader json(parsed, path.string());
      const auto nested = json.object("image_processor");
      check_fields(nested ? *nested : json, vision);
      return;
    }
  }
}

}  // namespace caravan::checkpoint
