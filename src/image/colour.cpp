#include "colour.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "caravan/core/error.h"
#include "memory_probe.h"

namespace caravan::image {
namespace {

// Profiles of sRGB differ from each other by rounding. Up to this they change no colour.
constexpr int kInvisibleStep = 2;
constexpr int kProbeSteps = 6;
// More than it takes to try a profile.
constexpr std::int64_t kProfileBytes = std::int64_t{16} << 20;

int num_colour_bands(const VipsImage* image) {
  switch (image->Type) {
    case VIPS_INTERPRETATION_B_W:
    case VIPS_INTERPRETATION_GREY16: return 1;
    case VIPS_INTERPRETATION_sRGB:
    case VIPS_INTERPRETATION_RGB:
    case VIPS_INTERPRETATION_RGB16: return 3;
    case VIPS_INTERPRETATION_CMYK: return 4;
    default: break;
  }
  throw InputError(
      fmt::format("images in the colour space \"{}\" are not supported: convert the "
                  "image to 8-bit RGB",
                  vips_enum_nick(VIPS_TYPE_INTERPRETATION, image->Type)));
}

/// Every combination of some levels (all levels of grey): enough to see what a profile does.
std::vector<std::uint8_t> probe_colours(int bands) {
  const int steps = bands == 1 ? 256 : kProbeSteps;
  std::vector<std::uint8_t> colours;
  std::vector<int> level(static_cast<std::size_t>(bands), 0);
  while (true) {
    for (const int value : level)
      colours.push_back(static_cast<std::uint8_t>(value * 255 / (steps - 1)));
    std::size_t band = 0;
    while (band < level.size() && ++level[band] == steps) level[band++] = 0;
    if (band == level.size()) return colours;
  }
}

VipsInterpretation space_of_bytes(int bands) {
  return bands == 1   ? VIPS_INTERPRETATION_B_W
         : bands == 3 ? VIPS_INTERPRETATION_sRGB
                      : VIPS_INTERPRETATION_CMYK;
}

VipsOwner in_bytes(VipsImage* image) {
  VipsImage* bytes = nullptr;
  if (vips_cast(image, &bytes, VIPS_FORMAT_UCHAR, "shift", TRUE, nullptr) != 0) return VipsOwner();
  return VipsOwner(bytes);
}

VipsOwner apply_profile(VipsImage* image) {
  VipsImage* result = nullptr;
  if (vips_icc_transform(image, &result, "srgb", "embedded", TRUE, "intent", VIPS_INTENT_RELATIVE,
                         "black_point_compensation", TRUE, "depth", 8, nullptr) != 0) {
    log_vips_errors();
    return VipsOwner();
  }
  return VipsOwner(result);
}

/// Whether the profile is for colours with `bands` channels (ICC.1:2010, table 19: bytes 16 to 19).
/// In the place of one that is not, libvips would take a profile of its own.
bool is_profile_of(int bands, std::string_view profile) {
  return profile.substr(std::min<std::size_t>(16, profile.size()), 4) == (bands == 1   ? "GRAY"
                                                                          : bands == 3 ? "RGB "
                                                                                       : "CMYK");
}

/// What the profile of `image` makes of `colours`, as RGB; empty if it cannot be used.
std::vector<std::uint8_t> profiled(VipsImage* image, std::vector<std::uint8_t>& colours) {
  const int count = static_cast<int>(colours.size()) / image->Bands;
  const VipsOwner memory(vips_image_new_from_memory(colours.data(), colours.size(), count, 1,
                                                    image->Bands, VIPS_FORMAT_UCHAR));
  VipsImage* copied = nullptr;
  CARAVAN_ASSERT(memory && vips_copy(memory.get(), &copied, "interpretation",
                                     space_of_bytes(image->Bands), nullptr) == 0,
                 "libvips cannot wrap {} pixels", count);
  const VipsOwner probe(copied);
  const void* profile = nullptr;
  std::size_t profile_bytes = 0;
  if (vips_image_get_blob(image, VIPS_META_ICC_NAME, &profile, &profile_bytes) != 0 ||
      !is_profile_of(image->Bands, {static_cast<const char*>(profile), profile_bytes}) ||
      vips_icc_is_compatible_profile(probe.get(), profile, profile_bytes) == FALSE)
    return {};
  vips_image_set_blob_copy(probe.get(), VIPS_META_ICC_NAME, profile, profile_bytes);
  const ColourBands converted{apply_profile(probe.get())};
  if (!converted.image || converted.image.get()->Bands != 3) return {};
  std::vector<std::uint8_t> rgb(static_cast<std::size_t>(count) * 3);
  std::int64_t row_failed = 0;
  const bool done = for_each_row(
      converted.image.get(),
      [&](std::int64_t, const void* row) { row_to_rgb(converted, row, rgb); }, &row_failed);
  return done ? rgb : std::vector<std::uint8_t>();
}

bool profile_changes_colour(VipsImage* image) {
  if (vips_image_get_typeof(image, VIPS_META_ICC_NAME) != VIPS_TYPE_BLOB) return false;
  std::vector<std::uint8_t> colours = probe_colours(image->Bands);
  const std::vector<std::uint8_t> after = profiled(image, colours);
  if (after.empty()) require_memory(kProfileBytes);  // else the profile cannot be used
  if (after.empty() || image->Bands == 4) return !after.empty();
  for (std::size_t i = 0; i < after.size(); ++i) {
    const std::uint8_t before = image->Bands == 1 ? colours[i / 3] : colours[i];
    if (std::abs(before - after[i]) > kInvisibleStep) return true;
  }
  return false;
}

/// Of 16 bits the upper eight count, as without a profile: LittleCMS takes profiles of 8 bits
/// exactly, but of 16 by a coarse table, which is off by up to 13 of 255.
VipsOwner in_srgb(VipsOwner colours) {
  if (!profile_changes_colour(colours.get())) return colours;
  const VipsOwner bytes = in_bytes(colours.get());
  VipsImage* named = nullptr;
  const VipsInterpretation space = space_of_bytes(colours.get()->Bands);
  if (!bytes || vips_copy(bytes.get(), &named, "interpretation", space, nullptr) != 0) return {};
  return apply_profile(VipsOwner(named).get());
}

std::uint8_t to_byte(std::uint8_t sample) { return sample; }
std::uint8_t to_byte(std::uint16_t sample) { return static_cast<std::uint8_t>(sample >> 8); }

/// (255 - ink)(255 - black) / 255, rounded.
std::uint8_t without_ink(std::uint8_t ink, std::uint8_t black) {
  return static_cast<std::uint8_t>(((255 - ink) * (255 - black) + 127) / 255);
}

/// @param step  samples from pixel to pixel
template <typename Sample>
void convert_row(const Sample* samples, int bands, int step, std::span<std::uint8_t> rgb) {
  const Sample* pixel = samples;
  for (std::size_t i = 0; i < rgb.size(); i += 3, pixel += step) {
    if (bands == 1) {
      rgb[i] = rgb[i + 1] = rgb[i + 2] = to_byte(pixel[0]);
    } else if (bands == 3) {
      for (std::size_t c = 0; c < 3; ++c) rgb[i + c] = to_byte(pixel[c]);
    } else {
      for (std::size_t c = 0; c < 3; ++c)
        rgb[i + c] = without_ink(to_byte(pixel[c]), to_byte(pixel[3]));
    }
  }
}

/// `colours`, and behind them the band of `image` that has the number `band`, all in bytes.
VipsOwner join_band(const VipsOwner& colours, VipsImage* image, int band) {
  VipsImage* next = nullptr;
  if (!colours || vips_extract_band(image, &next, band, nullptr) != 0) return VipsOwner();
  const VipsOwner single(next);
  const VipsOwner colour_bytes = in_bytes(colours.get());
  const VipsOwner band_bytes = in_bytes(single.get());
  if (!colour_bytes || !band_bytes ||
      vips_bandjoin2(colour_bytes.get(), band_bytes.get(), &next, nullptr) != 0)
    return VipsOwner();
  return VipsOwner(next);
}

}  // namespace

ColourBands colour_bands(VipsImage* image, Alpha alpha) {
  VipsOwner current(image);
  g_object_ref(image);
  VipsImage* next = nullptr;
  if (image->Type == VIPS_INTERPRETATION_LAB || image->Type == VIPS_INTERPRETATION_LABS) {
    if (vips_colourspace(image, &next, VIPS_INTERPRETATION_sRGB, nullptr) != 0) return {};
    current = VipsOwner(next);
  }
  const int bands = num_colour_bands(current.get());
  const VipsBandFormat format = current.get()->BandFmt;
  CARAVAN_CHECK(format == VIPS_FORMAT_UCHAR || format == VIPS_FORMAT_USHORT, InputError,
                "images with samples of type \"{}\" are not supported: convert the image to 8-bit "
                "RGB",
                vips_enum_nick(VIPS_TYPE_BAND_FORMAT, format));
  CARAVAN_CHECK(current.get()->Bands >= bands, InputError,
                "the image is damaged: {} channels per pixel, expected at least {}",
                current.get()->Bands, bands);
  if (current.get()->Bands == bands) return {in_srgb(std::move(current))};
  if (vips_extract_band(current.get(), &next, 0, "n", bands, nullptr) != 0) return {};
  VipsOwner colours = in_srgb(VipsOwner(next));
  if (alpha == Alpha::kDrop) return {std::move(colours)};
  return {join_band(colours, current.get(), bands), true};
}

void row_to_rgb(const ColourBands& bands, const void* samples, std::span<std::uint8_t> rgb) {
  const int step = bands.image.get()->Bands;
  const int colours = bands.has_alpha ? step - 1 : step;
  if (bands.image.get()->BandFmt == VIPS_FORMAT_USHORT) {
    convert_row(static_cast<const std::uint16_t*>(samples), colours, step, rgb);
    return;
  }
  const auto* const bytes = static_cast<const std::uint8_t*>(samples);
  convert_row(bytes, colours, step, rgb);
  if (!bands.has_alpha) return;
  const std::uint8_t* alpha = bytes + colours;
  for (std::size_t i = 0; i < rgb.size(); i += 3, alpha += step) {
    for (std::size_t c = 0; c < 3; ++c) rgb[i + c] = over_white(rgb[i + c], *alpha);
  }
}

}  // namespace caravan::image
