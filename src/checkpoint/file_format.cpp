#include "file_format.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/io/hdf5.h"
#include "token_bits.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kMaxTextBytes = std::int64_t{1} << 20;
constexpr std::int64_t kMaxVocabularyBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 24;
constexpr std::int64_t kMaxStopIds = 4096;

constexpr std::pair<text::TokenizerKind, const char*> kTokenizerKinds[] = {
    {text::TokenizerKind::kTiktoken, "tiktoken"},
    {text::TokenizerKind::kBpe, "bpe"},
    {text::TokenizerKind::kSentencePiece, "sentencepiece"},
};

constexpr std::pair<text::SpacePrefix, const char*> kSpacePrefixes[] = {
    {text::SpacePrefix::kNone, "none"},
    {text::SpacePrefix::kEverySegment, "every segment"},
    {text::SpacePrefix::kEverySegmentUnlessSpaced, "every segment unless spaced"},
    {text::SpacePrefix::kFirstSegmentUnlessSpaced, "first segment unless spaced"},
};

/// One group of the file, for messages.
struct Part {
  hid_t group;
  std::string path;
  std::string name;
  io::Hdf5Place place(const std::string& entry = {}) const {
    return {path, entry.empty() ? name : name + "/" + entry};
  }
};

void write_texts(const Part& part, const std::string& name, const std::vector<std::string>& texts) {
  std::string blob;
  std::vector<std::int64_t> offsets = {0};
  for (const std::string& text : texts) {
    blob += text;
    offsets.push_back(static_cast<std::int64_t>(blob.size()));
  }
  io::write_bytes_dataset(part.group, name, blob, part.place(name));
  io::write_int64_dataset(part.group, name + "_offsets", offsets, part.place(name + "_offsets"));
}

std::vector<std::string> read_texts(const Part& part, const std::string& name) {
  const std::string blob =
      io::read_bytes_dataset(part.group, name, kMaxVocabularyBytes, part.place(name));
  const io::Hdf5Place place = part.place(name + "_offsets");
  const auto offsets = io::read_int64_dataset(part.group, name + "_offsets", kMaxTokens, place);
  CARAVAN_CHECK(!offsets.empty() && offsets.front() == 0 && std::ssize(blob) == offsets.back() &&
                    std::is_sorted(offsets.begin(), offsets.end()),
                ConfigError, "{} must rise from 0 to {}, the bytes of {}", place.text(),
                blob.size(), name);
  std::vector<std::string> texts;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    texts.push_back(blob.substr(checked_cast<std::size_t>(offsets[i - 1]),
                                checked_cast<std::size_t>(offsets[i] - offsets[i - 1])));
  }
  return texts;
}

void write_optional_id(const Part& part, const char* name, std::optional<std::int32_t> id) {
  if (id) io::write_integer_attribute(part.group, name, *id, part.place());
}

std::optional<std::int32_t> read_optional_id(const Part& part, const char* name) {
  const auto value = io::read_integer_attribute(part.group, name, part.place());
  if (!value) return std::nullopt;
  CARAVAN_CHECK(std::in_range<std::int32_t>(*value) && *value >= 0, ConfigError,
                "{}, attribute {} is {}, expected a token id", part.place().text(), name, *value);
  return static_cast<std::int32_t>(*value);
}

bool read_flag(const Part& part, const char* name) {
  const auto value = io::read_integer_attribute(part.group, name, part.place());
  CARAVAN_CHECK(value == 0 || value == 1, ConfigError, "{}, attribute {} must be 0 or 1",
                part.place().text(), name);
  return *value == 1;
}

std::string required_text(hid_t object, const char* name, const io::Hdf5Place& place) {
  auto value = io::read_text_attribute(object, name, kMaxTextBytes, place);
  CARAVAN_CHECK(value.has_value(), ConfigError, "{}: the attribute {} is missing", place.text(),
                name);
  return *std::move(value);
}

void write_floats(const Part& part, const std::string& name, const std::vector<float>& values) {
  if (values.empty()) return;
  const std::int64_t count = std::ssize(values);
  const io::Hdf5Place place = part.place(name);
  const io::Hdf5Dataset dataset =
      io::create_dataset(part.group, name, H5T_IEEE_F32LE, std::span(&count, 1), place);
  CARAVAN_HDF5(
      IoError, place.text(),
      H5Dwrite(dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
}

std::vector<float> read_floats(const Part& part, const std::string& name, std::int64_t max_count) {
  const io::Hdf5Place place = part.place(name);
  if (!io::has_link(part.group, name, place)) return {};
  const io::Hdf5DatasetInfo info = io::open_dataset(part.group, name, place);
  CARAVAN_CHECK(H5Tequal(info.type.get(), H5T_IEEE_F32LE) > 0 && info.shape.size() == 1 &&
                    info.shape[0] <= max_count,
                ConfigError, "{} must be a list of at most {} 32-bit floating point numbers",
                place.text(), max_count);
  std::vector<float> values(checked_cast<std::size_t>(info.shape[0]));
  CARAVAN_HDF5(
      ConfigError, place.text(),
      H5Dread(info.dataset.get(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()));
  return values;
}

// What only SentencePiece tokenizers have: scores per id, ids of the byte tokens, space rules.
void write_sentencepiece(const Part& part, const text::TokenizerSpec& spec) {
  if (spec.kind != text::TokenizerKind::kSentencePiece) return;
  write_floats(part, "scores", spec.scores);
  io::write_int32_dataset(part.group, "byte_ids", spec.byte_ids, 1, part.place("byte_ids"));
  io::write_text_attribute(part.group, "space_prefix", space_prefix_name(spec.space_prefix),
                           part.place());
  io::write_integer_attribute(part.group, "remove_extra_spaces", spec.remove_extra_spaces ? 1 : 0,
                              part.place());
}

void read_sentencepiece(const Part& part, text::TokenizerSpec& spec) {
  if (spec.kind != text::TokenizerKind::kSentencePiece) return;
  spec.scores = read_floats(part, "scores", kMaxTokens);
  spec.byte_ids = io::read_int32_dataset(part.group, "byte_ids", 1, 256, part.place("byte_ids"));
  const std::string prefix = required_text(part.group, "space_prefix", part.place());
  const auto* const found = std::find_if(std::begin(kSpacePrefixes), std::end(kSpacePrefixes),
                                         [&](const auto& entry) { return entry.second == prefix; });
  CARAVAN_CHECK(found != std::end(kSpacePrefixes), ConfigError,
                "{}: the space_prefix \"{}\" is unknown", part.place().text(), prefix);
  spec.space_prefix = found->first;
  spec.remove_extra_spaces = read_flag(part, "remove_extra_spaces");
}

void write_tokenizer(const Part& part, const text::TokenizerSpec& spec) {
  for (const auto& [kind, name] : kTokenizerKinds) {
    if (kind == spec.kind) io::write_text_attribute(part.group, "kind", name, part.place());
  }
  write_texts(part, "tokens", spec.tokens);
  std::vector<std::int32_t> merges;
  for (const auto& [left, right] : spec.merges) merges.insert(merges.end(), {left, right});
  io::write_int32_dataset(part.group, "merges", merges, 2, part.place("merges"));
  std::vector<std::string> contents;
  std::vector<std::int32_t> added;  // id and bits
  for (const text::AddedToken& token : spec.added_tokens) {
    contents.push_back(token.content);
    added.insert(added.end(), {token.id, token_bits(token)});
  }
  write_texts(part, "added_tokens", contents);
  io::write_int32_dataset(part.group, "added_token_ids", added, 2, part.place("added_token_ids"));
  write_texts(part, "split_patterns", spec.split_patterns);
  io::write_integer_attribute(part.group, "ignore_merges", spec.ignore_merges ? 1 : 0,
                              part.place());
  io::write_integer_attribute(part.group, "add_bos", spec.add_bos ? 1 : 0, part.place());
  write_optional_id(part, "bos_id", spec.bos_id);
  write_optional_id(part, "eos_id", spec.eos_id);
  write_optional_id(part, "unknown_id", spec.unknown_id);
  write_sentencepiece(part, spec);
}

text::TokenizerSpec read_tokenizer(const Part& part) {
  text::TokenizerSpec spec;
  const std::string kind = required_text(part.group, "kind", part.place());
  const auto* const found = std::find_if(std::begin(kTokenizerKinds), std::end(kTokenizerKinds),
                                         [&](const auto& entry) { return entry.second == kind; });
  CARAVAN_CHECK(found != std::end(kTokenizerKinds), ConfigError,
                "{}: the tokenizer kind \"{}\" is unknown", part.place().text(), kind);
  spec.kind = found->first;
  spec.tokens = read_texts(part, "tokens");
  const auto merges =
      io::read_int32_dataset(part.group, "merges", 2, 2 * kMaxTokens, part.place("merges"));
  for (std::size_t i = 0; i < merges.size(); i += 2)
    spec.merges.emplace_back(merges[i], merges[i + 1]);
  const std::vector<std::string> contents = read_texts(part, "added_tokens");
  const io::Hdf5Place added_place = part.place("added_token_ids");
  const auto added =
      io::read_int32_dataset(part.group, "added_token_ids", 2, 2 * kMaxTokens, added_place);
  CARAVAN_CHECK(added.size() == 2 * contents.size(), ConfigError,
                "{} has {} values, expected two for each of {} added tokens", added_place.text(),
                added.size(), contents.size());
  for (std::size_t i = 0; i < contents.size(); ++i) {
    text::AddedToken& token = spec.added_tokens.emplace_back();
    token.id = added[2 * i];
    token.content = contents[i];
    set_token_bits(token, added[2 * i + 1]);
  }
  spec.split_patterns = read_texts(part, "split_patterns");
  spec.ignore_merges = read_flag(part, "ignore_merges");
  spec.add_bos = read_flag(part, "add_bos");
  spec.bos_id = read_optional_id(part, "bos_id");
  spec.eos_id = read_optional_id(part, "eos_id");
  spec.unknown_id = read_optional_id(part, "unknown_id");
  read_sentencepiece(part, spec);
  return spec;
}

void write_generation(const Part& part, const GenerationDefaults& generation) {
  const auto write_real = [&](const char* name, std::optional<double> value) {
    if (value) io::write_real_attribute(part.group, name, *value, part.place());
  };
  write_real("temperature", generation.temperature);
  write_real("top_p", generation.top_p);
  write_real("repetition_penalty", generation.repetition_penalty);
  if (generation.top_k)
    io::write_integer_attribute(part.group, "top_k", *generation.top_k, part.place());
  if (!generation.stop_ids.empty())
    io::write_int32_array_attribute(part.group, "stop_ids", generation.stop_ids, part.place());
}

GenerationDefaults read_generation(const Part& part, std::int64_t vocab_size) {
  GenerationDefaults generation;
  const std::string where = part.place().text();
  generation.temperature = io::read_real_attribute(part.group, "temperature", part.place());
  generation.top_p = io::read_real_attribute(part.group, "top_p", part.place());
  generation.repetition_penalty =
      io::read_real_attribute(part.group, "repetition_penalty", part.place());
  generation.top_k = io::read_integer_attribute(part.group, "top_k", part.place());
  for (const auto& value :
       {generation.temperature, generation.top_p, generation.repetition_penalty}) {
    CARAVAN_CHECK(!value || (std::isfinite(*value) && *value >= 0), ConfigError,
                  "{}: a sampling default is {}", where, *value);
  }
  generation.stop_ids =
      io::read_int32_array_attribute(part.group, "stop_ids", kMaxStopIds, part.place())
          .value_or(std::vector<std::int32_t>());
  for (const std::int32_t id : generation.stop_ids) {
    CARAVAN_CHECK(id >= 0 && id < vocab_size, ConfigError,
                  "{}: the stop id {} is outside the vocabulary of {}", where, id, vocab_size);
  }
  return generation;
}

io::Hdf5Group create_group(hid_t file, const char* name, const std::string& path) {
  return io::Hdf5Group(
      CARAVAN_HDF5(IoError, path, H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)));
}

std::int64_t check_format(hid_t file, const io::Hdf5Place& root) {
  const auto format = io::read_text_attribute(file, "format", kMaxTextBytes, root);
  CARAVAN_CHECK(
      format == kFormatName, ConfigError,
      "{} is an HDF5 file, but not a Caravan checkpoint (make one with `caravan convert`)",
      root.file);
  const auto version = io::read_integer_attribute(file, "version", root);
  CARAVAN_CHECK(version == kFormatVersion || version == kQuantizedFormatVersion, ConfigError,
                "{} has format version {}, this program reads versions {} and {}; convert the "
                "model again",
                root.file, version.value_or(0), kFormatVersion, kQuantizedFormatVersion);
  return *version;
}

}  // namespace

std::string_view space_prefix_name(text::SpacePrefix prefix) {
  const auto* const found = std::find_if(std::begin(kSpacePrefixes), std::end(kSpacePrefixes),
                                         [&](const auto& entry) { return entry.first == prefix; });
  CARAVAN_ASSERT(found != std::end(kSpacePrefixes), "a space prefix without a name");
  return found->second;
}

std::string_view split_name(model::Split split) {
  switch (split) {
    case model::Split::kReplicated: return "replicated";
    case model::Split::kQueryHeads: return "query_heads";
    case model::Split::kKvHeads: return "kv_heads";
    case model::Split::kFfnColumns: return "ffn_columns";
    case model::Split::kVocabulary: return "vocabulary";
    case model::Split::kHiddenRows: return "hidden_rows";
    case model::Split::kVisionHeads: return "vision_heads";
    case model::Split::kVisionFfnColumns: return "vision_ffn_columns";
  }
  return "?";
}

void write_description(hid_t file, const ModelDescription& description, const std::string& path) {
  const io::Hdf5Place root = {path, "/"};
  io::write_text_attribute(file, "format", kFormatName, root);
  io::write_integer_attribute(file, "version", format_version(description.dtype), root);
  io::write_text_attribute(file, "model", model::to_json(description.config), root);
  io::write_text_attribute(file, "name", description.name, root);
  io::write_text_attribute(file, "source", description.source, root);
  io::write_text_attribute(file, "dtype", dtype_name(description.dtype), root);
  io::write_text_attribute(file, "created_by", description.created_by, root);
  io::write_text_attribute(file, "content_hash", description.content_hash, root);

  const io::Hdf5Group tokenizer = create_group(file, "tokenizer", path);
  const Part part = {tokenizer.get(), path, "/tokenizer"};
  write_tokenizer(part, description.tokenizer);
  io::write_text_attribute(part.group, "chat_format",
                           text::chat_format_name(description.chat_format), part.place());
  io::write_text_dataset(part.group, "chat_default_system", description.chat_default_system,
                         part.place("chat_default_system"));
  io::write_text_dataset(part.group, "chat_template", description.chat_template,
                         part.place("chat_template"));
  const io::Hdf5Group generation = create_group(file, "generation", path);
  write_generation({generation.get(), path, "/generation"}, description.generation);
}

ModelDescription read_description(hid_t file, const std::string& path) {
  const io::Hdf5Place root = {path, "/"};
  const std::int64_t version = check_format(file, root);
  ModelDescription description;
  description.config = model::llama_config_from_json(required_text(file, "model", root));
  if (const auto problems = description.config.problems(); !problems.empty())
    throw ConfigError(fmt::format("{}: {}", path, fmt::join(problems, "; ")));
  description.name = required_text(file, "name", root);
  description.source = required_text(file, "source", root);
  description.created_by = required_text(file, "created_by", root);
  description.content_hash =
      io::read_text_attribute(file, "content_hash", kMaxTextBytes, root).value_or("");
  const std::string dtype = required_text(file, "dtype", root);
  const auto parsed_dtype = parse_dtype(dtype);
  CARAVAN_CHECK(parsed_dtype && format_version(*parsed_dtype) == version, ConfigError,
                "{}: the attribute dtype is \"{}\", expected {} in a file of version {}", path,
                dtype, version == kFormatVersion ? "fp32, bf16 or fp16" : "int8 or int4", version);
  description.dtype = *parsed_dtype;

  const io::Hdf5Group tokenizer = io::open_group(file, "tokenizer", {path, "/tokenizer"});
  const Part part = {tokenizer.get(), path, "/tokenizer"};
  description.tokenizer = read_tokenizer(part);
  const std::string chat_format = required_text(part.group, "chat_format", part.place());
  const auto kind = text::parse_chat_format(chat_format);
  CARAVAN_CHECK(kind.has_value(), ConfigError, "{}: the chat format \"{}\" is unknown", path,
                chat_format);
  description.chat_format = *kind;
  description.chat_default_system = io::read_text_dataset(
      part.group, "chat_default_system", kMaxTextBytes, part.place("chat_default_system"));
  description.chat_template = io::read_text_dataset(part.group, "chat_template", 16 * kMaxTextBytes,
                                                    part.place("chat_template"));
  const io::Hdf5Group generation = io::open_group(file, "generation", {path, "/generation"});
  description.generation =
      read_generation({generation.get(), path, "/generation"}, description.config.vocab_size);
  return description;
}

}  // namespace caravan::checkpoint
