#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <variant>

#include "caravan/app/commands.h"
#include "caravan/app/model_front.h"
#include "caravan/batch/prompt_builder.h"
#include "caravan/batch/request_parser.h"
#include "caravan/core/log.h"
#include "caravan/image/image_source.h"
#include "caravan/image/tiling.h"
#include "caravan/io/input_file.h"
#include "caravan/text/detokenizer.h"
#include "caravan/text/utf8.h"

namespace caravan::app {
namespace {

constexpr std::int64_t kMaxTextBytes = 1'000'000'000;

std::string input_text(const ParsedOptions& parsed) {
  const std::vector<std::string>& inputs = parsed.options.inputs;
  CARAVAN_CHECK(
      parsed.positional.size() + inputs.size() <= 1, UsageError,
      "tokenize takes one TEXT or one --input, found {}; put a text with spaces in quotes",
      parsed.positional.size() + inputs.size());
  if (!parsed.positional.empty()) return parsed.positional.front();
  if (!inputs.empty() && inputs.front() != "-") {
    return io::read_text_file(inputs.front(), kMaxTextBytes);
  }
  std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
  CARAVAN_CHECK(!text.empty(), InputError,
                "standard input is closed or empty, expected a text; `caravan tokenize --model "
                "MODEL.h5 \"\"` shows the empty text");
  return text;
}

std::vector<std::int32_t> parse_ids(const std::string& text, std::int64_t vocab_size) {
  std::vector<std::int32_t> ids;
  const char* position = text.data();
  const char* const end = position + text.size();
  while (position != end) {
    if (std::string_view(" ,[]\t\r\n").find(*position) != std::string_view::npos) {
      ++position;
      continue;
    }
    std::int32_t id = -1;
    const auto [next, fault] = std::from_chars(position, end, id);
    CARAVAN_CHECK(fault == std::errc{} && id >= 0 && id < vocab_size, InputError,
                  "--ids: expected token ids from 0 to {}, found \"{}\"", vocab_size - 1,
                  std::string(position, end).substr(0, 20));
    ids.push_back(id);
    position = next;
  }
  return ids;
}

// As the text of an input: without the space that some tokenizers put in front.
std::string text_of(const std::vector<std::int32_t>& ids, const text::Tokenizer& tokenizer) {
  text::Detokenizer detokenizer(tokenizer, true, text::DecodedText::kBegins);
  std::string decoded;
  for (const std::int32_t id : ids) decoded += detokenizer.push(id);
  return decoded + detokenizer.finish();
}

// Bytes of a token as a quoted text with escapes, so that blanks and half characters can be seen.
std::string shown(std::string_view bytes) {
  const bool valid = !text::find_invalid_utf8(bytes);
  std::string out = "\"";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !valid)) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::vector<std::int32_t> chat_ids(const JobOptions& options, const ModelFront& model,
                                   const std::string& text) {
  std::vector<text::ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", text});
  text::ChatOptions chat;
  chat.date = options.date;
  return model.chat_format->render(messages, chat);
}

std::vector<std::int32_t> plain_ids(const ModelFront& model, const std::string& text) {
  std::vector<std::int32_t> ids;
  const auto& spec = model.tokenizer->spec();
  if (spec.add_bos && spec.bos_id) ids.push_back(*spec.bos_id);
  const auto text_ids = model.tokenizer->encode(text);
  ids.insert(ids.end(), text_ids.begin(), text_ids.end());
  return ids;
}

// As `run --prompt TEXT --image FILE` makes them.
std::vector<std::int32_t> ids_with_images(const JobOptions& options, const ModelFront& model,
                                          const std::string& text) {
  constexpr std::int64_t kNoLimit = std::int64_t{1} << 40;  // of the context
  const batch::RequestParser parser(parser_options(options, model));
  const batch::PromptBuilder builder(*model.tokenizer, *model.chat_format, kNoLimit);
  const batch::ParsedRecord parsed =
      parser.parse_plain({"", options.chat ? batch::Endpoint::kChat : batch::Endpoint::kCompletion,
                          options.system, text, options.images});
  const auto* fault = std::get_if<batch::RecordFault>(&parsed);
  CARAVAN_CHECK(fault == nullptr, InputError, "{}", log::escape_line(fault->message));
  batch::BuiltPrompts built = builder.build(std::get<batch::Record>(parsed));
  fault = std::get_if<batch::RecordFault>(&built);
  CARAVAN_CHECK(fault == nullptr, InputError, "{}", log::escape_line(fault->message));
  return std::get<std::vector<batch::TokenizedPrompt>>(built).front().ids;
}

// What the model sees of an image, a line for each.
std::string describe_images(const JobOptions& options, const model::VisionConfig& vision) {
  const image::ImageSource source("/", options.max_image_bytes);
  image::TilingConfig tiling;
  tiling.tile_size = vision.tile_size;
  std::string lines;
  for (const std::string& file : options.images) {
    const std::string path = std::filesystem::absolute(file).string();
    try {
      const image::ImageHeader header =
          image::read_header(source.read(path), {options.max_image_pixels, options.image_alpha});
      const image::TileLayout layout = image::choose_layout(header.width, header.height, tiling);
      lines += fmt::format(
          "{}: {} x {} pixels, shown as {} x {} in {} tiles down and {} across: {} image tokens\n",
          image::describe_source(file), header.width, header.height, layout.resized_width,
          layout.resized_height, layout.rows, layout.columns,
          layout.num_tiles() * vision.tile_tokens());
    } catch (const InputError& error) {
      throw InputError(fmt::format("--image {}: {}", image::describe_source(file), error.what()));
    }
  }
  return lines;
}

}  // namespace

ExitCode tokenize_command(const ParsedOptions& parsed) {
  const JobOptions& options = parsed.options;
  CARAVAN_CHECK(!options.chat || !options.ids, UsageError, "--chat and --ids exclude each other");
  CARAVAN_CHECK(options.images.empty() || !options.ids, UsageError,
                "--image and --ids exclude each other");
  const ModelFront model = open_model(options);
  const std::string text = input_text(parsed);
  if (options.ids) {
    const auto ids = parse_ids(text, model.tokenizer->vocab_size());
    print_result(text_of(ids, *model.tokenizer) + "\n");
    return ExitCode::kOk;
  }
  const auto fault = text::find_invalid_utf8(text);
  CARAVAN_CHECK(!fault, InputError, "the text is not valid UTF-8: byte {} is at fault", *fault);
  const auto ids = !options.images.empty() ? ids_with_images(options, model, text)
                   : options.chat          ? chat_ids(options, model, text)
                                           : plain_ids(model, text);
  std::string out;
  if (!options.images.empty())
    out += describe_images(options, *model.file.description().config.vision);
  out += fmt::format("{} tokens\n[{}]\n", ids.size(), fmt::join(ids, ", "));
  for (const std::int32_t id : ids) {
    out += fmt::format("{:>8}  {}{}\n", id, shown(model.tokenizer->token_bytes(id, true)),
                       model.tokenizer->is_special(id) ? "  special" : "");
  }
  print_result(out);
  return ExitCode::kOk;
}

}  // namespace caravan::app
