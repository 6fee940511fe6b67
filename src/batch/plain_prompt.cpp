// Prompts without an envelope and fields.

#include <fmt/format.h>

#include <utility>

#include "caravan/batch/request_parser.h"
#include "caravan/text/utf8.h"
#include "record_faults.h"
#include "request_fields.h"

namespace caravan::batch {
namespace {

RecordFaults plain_faults(const PlainPrompt& prompt, const ParserOptions& options) {
  RecordFaults faults;
  for (const auto* text : {&prompt.system, &prompt.text}) {
    if (const auto offset = text::find_invalid_utf8(*text)) {
      faults.add({400, "invalid_text",
                  fmt::format("not valid UTF-8: byte 0x{:02x} at byte {} of the text",
                              static_cast<unsigned char>((*text)[*offset]), *offset),
                  ""});
    }
    if (const auto offset = text->find('\0'); offset != std::string::npos) {
      faults.add({400, "invalid_text",
                  fmt::format("the text has a NUL byte at byte {}; is this a text file?", offset),
                  ""});
    }
  }
  if (!prompt.images.empty() && !options.reads_images) {
    faults.add({400, "unsupported_parameter",
                fmt::format("model {} has no vision: the prompt has an image", options.model_name),
                "image"});
  }
  if (std::ssize(prompt.images) > options.max_images) {
    faults.add({400, "too_many_images",
                fmt::format("the prompt has {} images, but a record may have {} (--max-images)",
                            prompt.images.size(), options.max_images),
                "image"});
  }
  return faults;
}

}  // namespace

ParsedRecord RequestParser::parse_plain(const PlainPrompt& prompt) const {
  if (const RecordFaults faults = plain_faults(prompt, options_); faults.any())
    return faults.joined();
  Record record;
  record.custom_id = prompt.custom_id;
  record.endpoint = prompt.endpoint;
  for (const std::string& image : prompt.images) record.images.push_back({image, "image"});
  record.sampling = default_sampling(options_.defaults);
  record.sampling.seed = record_seed(options_.defaults.seed, prompt.custom_id);
  record.max_tokens = options_.defaults.max_tokens;
  if (prompt.endpoint == Endpoint::kChat) {
    if (!prompt.system.empty()) record.messages.push_back({"system", prompt.system});
    record.messages.push_back({"user", prompt.text});
    record.messages.back().image_offsets.assign(prompt.images.size(), 0);
    record.chat_options.date = options_.defaults.date;
  } else {
    std::string text = prompt.text;
    if (!prompt.images.empty()) record.image_offsets = take_image_marks(text);
    if (record.image_offsets.empty()) record.image_offsets.assign(prompt.images.size(), 0);
    if (record.image_offsets.size() != prompt.images.size()) {
      return RecordFault{
          400, "invalid_value",
          fmt::format("the prompt has {} places for images ({}) and {} images",
                      record.image_offsets.size(), kImageMarker, prompt.images.size()),
          "image"};
    }
    record.prompts.emplace_back(std::move(text));
    if (!record.max_tokens) record.max_tokens = kDefaultCompletionTokens;
  }
  std::string content = prompt.system + '\0' + prompt.text;
  for (const std::string& image : prompt.images) content += '\0' + image;
  record.content_hash = text_hash(content);
  return record;
}

}  // namespace caravan::batch
