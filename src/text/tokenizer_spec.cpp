#include "caravan/text/tokenizer_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "caravan/core/error.h"
#include "caravan/text/utf8.h"
#include "split_pattern.h"
#include "tokenizer_limits.h"
#include "vocabulary.h"

namespace caravan::text {
namespace {

/// Collects faults; a hostile file can have millions, of which the first ones say enough.
class FaultList {
 public:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    ++count_;
    if (count_ <= kMaxListed) faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  std::vector<std::string> take() {
    if (count_ > kMaxListed) faults_.push_back(fmt::format("... and {} more", count_ - kMaxListed));
    return std::move(faults_);
  }

 private:
  static constexpr std::size_t kMaxListed = 50;
  std::size_t count_ = 0;
  std::vector<std::string> faults_;
};

void check_tokens(const TokenizerSpec& spec, const Vocabulary& vocabulary, FaultList& faults) {
  if (spec.tokens.empty()) faults.add("there are no tokens");
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].size() > kMaxTokenBytes) {
      faults.add("token {} has {} bytes; at most {} are supported", id, spec.tokens[id].size(),
                 kMaxTokenBytes);
    }
  }
  for (const auto& [first, later] : vocabulary.duplicates()) {
    faults.add("tokens {} and {} have the same bytes", first, later);
  }
  // A listed-merges vocabulary may lack bytes (SmolLM2's has 235): they are left out of the text.
  if (spec.kind != TokenizerKind::kTiktoken) return;
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (vocabulary.find(std::string_view(&text, 1)) == kNoToken) {
      faults.add("byte 0x{:02X} has no token", byte);
    }
  }
}

void check_merges(const TokenizerSpec& spec, const Vocabulary& vocabulary, FaultList& faults) {
  if (spec.kind == TokenizerKind::kTiktoken && !spec.merges.empty()) {
    faults.add("a tiktoken vocabulary has no merge list, but {} merges are given",
               spec.merges.size());
  }
  std::string merged;
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const auto [left, right] = spec.merges[i];
    if (vocabulary.bytes(left).empty() || vocabulary.bytes(right).empty()) {
      faults.add("merge {} joins ids {} and {}, of which one is not an ordinary token", i, left,
                 right);
      continue;
    }
    merged.assign(vocabulary.bytes(left)).append(vocabulary.bytes(right));
    if (vocabulary.find(merged) == kNoToken) {
      faults.add("merge {} joins ids {} and {} to bytes that are not an ordinary token", i, left,
                 right);
    }
  }
}

void check_byte_ids(const TokenizerSpec& spec, FaultList& faults) {
  if (spec.byte_ids.size() != 256) {
    faults.add("there are ids for {} bytes, expected 256", spec.byte_ids.size());
    return;
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const std::int32_t id = spec.byte_ids[byte];
    const bool is_token = id >= 0 && static_cast<std::size_t>(id) < spec.tokens.size();
    const char text = static_cast<char>(byte);
    if (!is_token || spec.tokens[static_cast<std::size_t>(id)] != std::string_view(&text, 1)) {
      faults.add("byte 0x{:02X} has id {}, which is not a token of this one byte", byte, id);
    }
  }
}

void check_scores(const TokenizerSpec& spec, FaultList& faults) {
  if (!spec.merges.empty()) {
    faults.add("there are both scores and {} merges, expected one of them", spec.merges.size());
  }
  if (spec.scores.size() != spec.tokens.size()) {
    faults.add("there are {} scores for {} tokens", spec.scores.size(), spec.tokens.size());
  }
  for (std::size_t id = 0; id < spec.scores.size(); ++id) {
    if (!std::isfinite(spec.scores[id])) faults.add("the score of token {} is not a number", id);
  }
}

/// Tokens are merged from characters, so that half characters cannot be among them.
void check_whole_characters(const TokenizerSpec& spec, FaultList& faults) {
  const std::set<std::int32_t> byte_tokens(spec.byte_ids.begin(), spec.byte_ids.end());
  for (std::size_t id = 0; id < spec.tokens.size(); ++id) {
    if (byte_tokens.contains(static_cast<std::int32_t>(id))) continue;
    if (find_invalid_utf8(spec.tokens[id])) faults.add("token {} is not valid UTF-8", id);
  }
}

void check_sentencepiece_fields(const TokenizerSpec& spec, FaultList& faults) {
  if (spec.kind == TokenizerKind::kSentencePiece) {
    check_byte_ids(spec, faults);
    if (!spec.scores.empty()) check_scores(spec, faults);
    if (spec.byte_ids.size() == 256) check_whole_characters(spec, faults);
    return;
  }
  const bool has_normalized = std::any_of(spec.added_tokens.begin(), spec.added_tokens.end(),
                                          [](const AddedToken& added) { return added.normalized; });
  if (!spec.scores.empty() || !spec.byte_ids.empty() || spec.remove_extra_spaces ||
      spec.space_prefix != SpacePrefix::kNone || has_normalized) {
    faults.add("scores, byte ids and white-space rules are for SentencePiece tokenizers only");
  }
}

void check_added_tokens(const TokenizerSpec& spec, FaultList& faults) {
  std::set<std::int32_t> ids;
  std::set<std::string_view> contents;
  for (const AddedToken& added : spec.added_tokens) {
    if (added.id < 0 || static_cast<std::size_t>(added.id) >= spec.tokens.size()) {
      faults.add("added token \"{}\" has id {}, outside 0 to {}", added.content, added.id,
                 static_cast<std::int64_t>(spec.tokens.size()) - 1);
    }
    if (added.content.empty()) faults.add("added token {} has no content", added.id);
    if (added.content.size() > kMaxTokenBytes) {
      faults.add("added token {} has {} bytes; at most {} are supported", added.id,
                 added.content.size(), kMaxTokenBytes);
    }
    if (!ids.insert(added.id).second) faults.add("id {} is given to two added tokens", added.id);
    if (!contents.insert(added.content).second) {
      faults.add("added token \"{}\" is listed twice", added.content);
    }
  }
}

void check_named_ids(const TokenizerSpec& spec, FaultList& faults) {
  const auto check = [&](std::string_view name, std::optional<std::int32_t> id) {
    if (id && (*id < 0 || static_cast<std::size_t>(*id) >= spec.tokens.size())) {
      faults.add("{} {} is outside 0 to {}", name, *id,
                 static_cast<std::int64_t>(spec.tokens.size()) - 1);
    }
  };
  check("bos_id", spec.bos_id);
  check("eos_id", spec.eos_id);
  check("unknown_id", spec.unknown_id);
  if (spec.add_bos && !spec.bos_id) faults.add("prompts start with BOS, but there is no bos_id");
}

void check_patterns(const TokenizerSpec& spec, FaultList& faults) {
  for (const std::string& pattern : spec.split_patterns) {
    try {
      const SplitPattern compiled(pattern);
    } catch (const ConfigError& error) {
      faults.add("{}", error.what());
    }
  }
}

}  // namespace

std::vector<std::string> TokenizerSpec::problems() const {
  FaultList faults;
  if (static_cast<std::int64_t>(tokens.size()) > kMaxVocabulary) {
    faults.add("there are {} tokens; at most {} are supported", tokens.size(), kMaxVocabulary);
    return faults.take();
  }
  const Vocabulary vocabulary(*this);
  check_tokens(*this, vocabulary, faults);
  check_merges(*this, vocabulary, faults);
  check_sentencepiece_fields(*this, faults);
  check_added_tokens(*this, faults);
  check_named_ids(*this, faults);
  check_patterns(*this, faults);
  return faults.take();
}

}  // namespace caravan::text
