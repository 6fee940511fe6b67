#include "source_parts.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/model/shard_plan.h"
#include "caravan/text/utf8.h"

namespace caravan::checkpoint {
namespace {

constexpr std::string_view kLfsHeader = "version https://git-lfs.github.com/spec/";
// First bytes of encrypted files: `openssl enc`, age, GnuPG's text form.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kEncrypted = {{
    {"Salted__", "openssl enc"},
    {"age-encryption.org/", "age"},
    {"-----BEGIN AGE ENCRYPTED FILE", "age"},
    {"-----BEGIN PGP MESSAGE", "GnuPG"},
}};
constexpr std::int64_t kHeadBytes = 256;  // enough to see what a file is
// Llama 3's tokens that end a text or a turn; sources name one id only where models have several.
constexpr std::array<std::string_view, 3> kEndTexts = {"<|end_of_text|>", "<|eom_id|>",
                                                       "<|eot_id|>"};
constexpr std::size_t kMaxFaults = 20;
constexpr std::size_t kMaxNameBytes = 200;

std::vector<std::int64_t> torch_shape(const model::TensorSpec& spec) {
  if (spec.is_vector) return {spec.rows};
  if (spec.transposed) return {spec.columns, spec.rows};
  return {spec.rows, spec.columns};
}

// The type that holds every value of all matrices.
DType lossless_dtype(const std::map<std::string, SourceTensor>& tensors) {
  std::set<ElementType> types;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.shape.size() == 2) types.insert(tensor.type);
  }
  if (types == std::set{ElementType::kBF16}) return DType::kBFloat16;
  if (types == std::set{ElementType::kF16}) return DType::kFloat16;
  return DType::kFloat32;
}

[[noreturn]] void throw_faults(const std::vector<std::string>& faults, const std::string& where) {
  const std::size_t shown = std::min(faults.size(), kMaxFaults);
  std::string text = fmt::format("{} does not hold the tensors of its description:", where);
  for (std::size_t i = 0; i < shown; ++i) text += "\n" + faults[i];
  if (shown < faults.size()) text += fmt::format("\n... and {} more", faults.size() - shown);
  throw InputError(text);
}

bool is_web_page(std::string head) {
  for (char& c : head) c = (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  const std::size_t begin = head.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return false;
  const std::string_view text = std::string_view(head).substr(begin);
  return text.starts_with("<!doctype html") || text.starts_with("<html");
}

template <typename NameOf>
void match(Source& source, std::vector<SourceTensor> found, NameStyle style, const NameOf& name_of,
           const std::string& where) {
  std::map<std::string, SourceTensor> by_name;
  for (SourceTensor& tensor : found) by_name.emplace(tensor.name, std::move(tensor));
  std::vector<std::string> faults;
  for (const model::TensorSpec& spec : model::tensor_specs(source.description.config)) {
    const auto entry = by_name.find(name_of(spec.name));
    if (entry == by_name.end()) {
      faults.push_back(name_of(spec.name) + " is missing");
      continue;
    }
    if (entry->second.shape != torch_shape(spec)) {
      faults.push_back(fmt::format("{} has shape [{}], expected [{}]", entry->first,
                                   fmt::join(entry->second.shape, ", "),
                                   fmt::join(torch_shape(spec), ", ")));
    }
    source.tensors.emplace(spec.name, std::move(entry->second));
    by_name.erase(entry);
  }
  for (const auto& [name, tensor] : by_name) {
    const bool unused_head =
        source.description.config.tied_embeddings && name == name_of("text.head");
    if (!unused_head && !is_ignored_tensor(name, style))
      faults.push_back(name + " is in the source, but no Llama model of this description has it");
  }
  if (!faults.empty()) throw_faults(faults, where);
  source.description.dtype = lossless_dtype(source.tensors);
}

}  // namespace

void refuse_stand_in(io::InputFile& file) {
  CARAVAN_CHECK(file.size() > 0, InputError, "{} is empty: the download failed, fetch it again",
                file.path());
  std::string head(static_cast<std::size_t>(std::min(file.size(), kHeadBytes)), '\0');
  file.read(0, std::as_writable_bytes(std::span(head.data(), head.size())));
  CARAVAN_CHECK(!head.starts_with(kLfsHeader), InputError,
                "{} is a Git LFS pointer and not the file itself; run `git lfs pull` in its "
                "repository",
                file.path());
  for (const auto& [begin, program] : kEncrypted) {
    CARAVAN_CHECK(!head.starts_with(begin), InputError, "{} is encrypted (by {}); decrypt it first",
                  file.path(), program);
  }
  CARAVAN_CHECK(!is_web_page(head), InputError,
                "{} is a web page (HTML) and not the file itself, as a server sends one to whom it "
                "does not let in; log in, accept the model's licence and fetch it again",
                file.path());
}

std::string read_small_file(const std::filesystem::path& path, std::int64_t max_bytes) {
  io::InputFile file(path.string());
  refuse_stand_in(file);
  return io::read_text_file(path.string(), max_bytes);
}

void match_tensors(Source& source, std::vector<SourceTensor> found, NameStyle style,
                   const std::string& where) {
  const auto name_of = [style](std::string_view canonical) {
    return source_tensor_name(canonical, style);
  };
  match(source, std::move(found), style, name_of, where);
}

void match_tensors(Source& source, std::vector<SourceTensor> found, const VisionNames& names,
                   const std::string& where) {
  const auto name_of = [&names](std::string_view canonical) { return names.of(canonical); };
  match(source, std::move(found), names.style(), name_of, where);
}

bool is_end_of_text(std::string_view token) {
  return std::find(kEndTexts.begin(), kEndTexts.end(), token) != kEndTexts.end();
}

std::vector<std::int32_t> end_of_text_ids(const std::vector<text::AddedToken>& tokens) {
  std::vector<std::int32_t> ids;
  for (const text::AddedToken& token : tokens) {
    if (token.special && is_end_of_text(token.content)) ids.push_back(token.id);
  }
  return ids;
}

std::vector<std::int32_t> merge_stop_ids(const std::vector<std::vector<std::int32_t>>& lists,
                                         std::int64_t vocab_size, const std::string& where) {
  std::set<std::int32_t> merged;
  for (const auto& list : lists) merged.insert(list.begin(), list.end());
  for (const std::int32_t id : merged) {
    CARAVAN_CHECK(id >= 0 && id < vocab_size, InputError,
                  "{}: the end-of-text id {} is outside the vocabulary of {}", where, id,
                  vocab_size);
  }
  return {merged.begin(), merged.end()};
}

std::string matrix_types(const Source& source) {
  std::set<ElementType> types;
  for (const auto& [name, tensor] : source.tensors) {
    if (tensor.shape.size() == 2) types.insert(tensor.type);
  }
  std::vector<std::string_view> names;
  for (const ElementType type : types) names.push_back(element_type_name(type));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string presentable_name(const std::string& name) {
  std::string result = name.substr(0, kMaxNameBytes);
  result = text::replace_invalid_utf8(result.substr(0, text::complete_utf8_prefix(result)));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, ' ');
  return result.empty() ? "model" : result;
}

}  // namespace caravan::checkpoint
