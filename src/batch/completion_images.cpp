// Images of raw prompts.

#include <fmt/format.h>

#include "request_fields.h"

namespace caravan::batch {
namespace {

constexpr const char* kField = "multi_modal_data";

// "image": an address, or a list of them.
std::vector<RecordImage> images_of(JsonFields& data) {
  const std::string path = data.path("image");
  const Json* value = data.find("image");
  if (value == nullptr) refuse("missing_field", fmt::format("{} is missing", path), path);
  if (value->is_string()) return {{value->get<std::string>(), path}};
  const auto refuse_type = [](const Json& found, const std::string& where) {
    refuse("invalid_type",
           fmt::format("{} must be the address of an image (data: URI or path), or {}.image a list "
                       "of them, found {}",
                       where, kField, json_kind(found)),
           where);
  };
  if (!value->is_array()) refuse_type(*value, path);
  std::vector<RecordImage> images;
  for (std::size_t i = 0; i < value->size(); ++i) {
    const std::string element = fmt::format("{}.{}", path, i);
    if (!(*value)[i].is_string()) refuse_type((*value)[i], element);
    images.push_back({(*value)[i].get<std::string>(), element});
  }
  return images;
}

// The same for token ids, where an image has the first id behind the vocabulary.
std::vector<std::size_t> take_image_marks(std::vector<std::int32_t>& ids, std::int64_t image_id) {
  std::vector<std::size_t> offsets;
  std::vector<std::int32_t> rest;
  for (const std::int32_t id : ids) {
    if (id == image_id) {
      offsets.push_back(rest.size());
    } else {
      rest.push_back(id);
    }
  }
  ids = std::move(rest);
  return offsets;
}

}  // namespace

std::vector<std::size_t> take_image_marks(std::string& text) {
  std::vector<std::size_t> offsets;
  for (std::size_t at = text.find(kImageMarker); at != std::string::npos;
       at = text.find(kImageMarker, at)) {
    text.erase(at, kImageMarker.size());
    offsets.push_back(at);
  }
  return offsets;
}

void parse_completion_images(JsonFields& body, const ParserOptions& options, Record& record) {
  const Json* value = body.find(kField);
  if (value == nullptr) return;
  if (!value->is_object()) {
    refuse("invalid_type",
           fmt::format("{} must be an object with image, found {}", kField, json_kind(*value)),
           kField);
  }
  JsonFields data(*value, fmt::format("{}.", kField), body.faults());
  std::vector<RecordImage> images = images_of(data);
  if (const auto unknown = data.unknown(); !unknown.empty()) {
    refuse("unsupported_parameter", fmt::format("{} is not supported, only image", unknown.front()),
           unknown.front());
  }
  // An empty list says that the text has no places: one that has some is a fault below.
  if (images.empty() && (!options.reads_images || record.prompts.size() != 1)) return;
  if (!options.reads_images) {
    refuse("unsupported_parameter",
           fmt::format("model {} has no vision: {} has an image", options.model_name, kField),
           kField);
  }
  if (record.prompts.size() != 1) {
    refuse("invalid_value",
           fmt::format("{} needs exactly one prompt, found {}", kField, record.prompts.size()),
           kField);
  }
  if (std::ssize(images) > options.max_images) {
    refuse("too_many_images",
           fmt::format("{} has {} images, but a record may have {} (--max-images)", kField,
                       images.size(), options.max_images),
           images[static_cast<std::size_t>(options.max_images)].param);
  }
  CompletionPrompt& prompt = record.prompts.front();
  auto* text = std::get_if<std::string>(&prompt);
  record.image_offsets =
      text != nullptr
          ? take_image_marks(*text)
          : take_image_marks(std::get<std::vector<std::int32_t>>(prompt), options.vocab_size);
  if (record.image_offsets.size() != images.size()) {
    refuse("invalid_value",
           fmt::format("the prompt has {} places for images ({} in texts, {} in token ids), but {} "
                       "has {} images",
                       record.image_offsets.size(), kImageMarker, options.vocab_size, kField,
                       images.size()),
           "prompt");
  }
  record.images = std::move(images);
}

}  // namespace caravan::batch
