#include "caravan/batch/workload.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::batch {
namespace {

// A prompt that a user laid out by hand, control tokens and all, for a program that reads them so.
bool spells_start_token(const Record& record, const text::Tokenizer& tokenizer) {
  const auto bos = tokenizer.spec().bos_id;
  const std::string_view spelling = bos ? tokenizer.token_bytes(*bos, true) : std::string_view();
  if (spelling.empty() || !tokenizer.is_special(*bos)) return false;
  return std::any_of(record.prompts.begin(), record.prompts.end(), [&](const auto& prompt) {
    const auto* text = std::get_if<std::string>(&prompt);
    return text != nullptr && text->starts_with(spelling);
  });
}

void add_fault(std::optional<RecordFault>& faults, const RecordFault& fault) {
  if (faults) {
    append_fault(*faults, fault);
  } else {
    faults = fault;
  }
}

}  // namespace

std::vector<engine::Request> engine_requests(const Record& record,
                                             const std::vector<TokenizedPrompt>& prompts,
                                             std::int64_t first_id,
                                             std::vector<engine::PromptImage> images) {
  CARAVAN_ASSERT(images.empty() || prompts.size() == 1, "{} images for {} prompts", images.size(),
                 prompts.size());
  std::vector<engine::Request> requests;
  requests.reserve(prompts.size());
  for (const TokenizedPrompt& prompt : prompts) {
    engine::Request request{first_id++, prompt.ids, std::move(images), record.sampling};
    images.clear();
    request.sampling.max_tokens = prompt.max_tokens;
    request.sampling.prompt_index = std::ssize(requests);
    requests.push_back(std::move(request));
  }
  return requests;
}

Workload::Workload(PromptFiles files, const RequestParser& parser, const PromptBuilder& builder,
                   ImageCatalog* images)
    : files_(std::move(files)), parser_(&parser), builder_(&builder), images_(images) {
  files_.scan([this](const PromptFiles::Seen& seen) { add(seen); });
  ids_.clear();
  duplicates_.clear();
  summary_.records = checked_cast<std::int64_t>(entries_.size());
  summary_.blank_lines = files_.blank_lines();
  summary_.input_bytes = files_.total_bytes();
  if (images_ == nullptr || images_->num_checked() == 0) return;
  summary_.distinct_images = images_->num_distinct();
  images_hash_ = images_->content_hash();
}

void Workload::add(const PromptFiles::Seen& seen) {
  const auto index = checked_cast<std::int64_t>(entries_.size());
  Entry entry;
  entry.place = seen.place;
  entry.text_hash = text_hash(seen.text);
  std::string custom_id;
  ParsedRecord parsed =
      seen.too_long ? ParsedRecord(RecordFault{
                          413, "record_too_large",
                          fmt::format("the record is longer than {} bytes", kMaxRecordBytes), ""})
                    : files_.parse(seen.place, seen.text, *parser_, custom_id);
  std::int64_t first = 0;
  const bool duplicate = !custom_id.empty() && is_duplicate(custom_id, index, first);
  if (custom_id.empty()) custom_id = files_.label(seen.place);
  std::optional<RecordFault> fault;
  if (duplicate) {
    fault = {400, "duplicate_custom_id",
             fmt::format("custom_id \"{}\" was used before, at {}", custom_id,
                         files_.label(entries_[static_cast<std::size_t>(first)].place)),
             "custom_id"};
  }
  if (const auto* parse_fault = std::get_if<RecordFault>(&parsed)) {
    add_fault(fault, *parse_fault);
  } else {
    find_faults(std::get<Record>(parsed), entry, fault);
  }
  if (fault) {
    const std::uint64_t before = duplicate ? ++duplicates_[entry.text_hash] : 0;
    mark_faulty(index, {std::move(custom_id), entry.text_hash + before, std::move(*fault)});
  } else {
    add_good(std::get<Record>(parsed), entry);
  }
  entries_.push_back(entry);
}

// Those of its prompt and its images.
void Workload::find_faults(Record& record, Entry& entry, std::optional<RecordFault>& fault) {
  if (const auto of_prompt = builder_->check(record)) add_fault(fault, *of_prompt);
  if (record.images.empty()) return;
  CARAVAN_ASSERT(images_ != nullptr, "a record with images passed a parser that refuses them");
  record.image_source = images_->source_of(files_.folder(entry.place));
  // Only a good record will show its images.
  const auto index = fault ? std::nullopt : std::optional(std::ssize(entries_));
  const auto checked = images_->check(record, index);
  if (const auto* of_images = std::get_if<RecordFault>(&checked)) add_fault(fault, *of_images);
  if (fault || !computes(record)) return;
  const auto& blocks = std::get<ImageBlocks>(checked);
  entry.image_blocks = checked_cast<std::int32_t>(blocks.all);
  entry.image_group = checked_cast<std::int32_t>(blocks.largest_group);
  entry.seen_blocks = checked_cast<std::int32_t>(blocks.most_seen);
}

void Workload::add_good(const Record& record, Entry& entry) {
  count_good(record, 1);
  entry.has_images = !record.images.empty();
  if (!computes(record)) return;
  const bool chat = record.endpoint == Endpoint::kChat;
  const auto prompts = chat ? std::int64_t{1} : checked_cast<std::int64_t>(record.prompts.size());
  entry.worst_case = checked_cast<std::int32_t>(builder_->worst_case_tokens(record));
  entry.sequences = checked_cast<std::int32_t>(
      std::min<std::int64_t>(prompts * record.sampling.num_choices, 1 << 20));
}

void Workload::count_good(const Record& record, std::int64_t change) {
  (record.endpoint == Endpoint::kChat ? summary_.chat : summary_.completions) += change;
  if (!record.max_tokens) summary_.open_ended += change;
  if (!record.images.empty()) summary_.image_records += change;
  summary_.images += change * std::ssize(record.images);
  if (spells_start_token(record, builder_->tokenizer())) summary_.bos_texts += change;
}

void Workload::mark_faulty(std::int64_t index, Faulty faulty) {
  faulty_.emplace(index, std::move(faulty));
  ++summary_.faulty;
}

bool Workload::is_duplicate(const std::string& custom_id, std::int64_t index, std::int64_t& first) {
  // 64 bits of hash: two different ids among a million meet with a chance of 1 in 37 million; the
  // record is then compared with the text of the earlier one.
  const auto [found, inserted] = ids_.emplace(text_hash(custom_id), index);
  if (inserted) return false;
  first = found->second;
  return item(first).custom_id == custom_id;
}

WorkItem Workload::item(std::int64_t index) {
  const auto faulty = faulty_.find(index);
  if (faulty != faulty_.end()) {
    const Faulty& known = faulty->second;
    return {index, known.custom_id, known.content_hash, known.fault};
  }
  const Entry& entry = entries_[static_cast<std::size_t>(index)];
  const RecordPlace& place = entry.place;
  const std::string text = files_.text(place);
  CARAVAN_CHECK(text_hash(text) == entry.text_hash, IoError,
                "{}: the input has changed since it was checked. Finished records are kept: put "
                "the input back as it was and run the same command again, or start anew with "
                "another --output",
                files_.label(place));
  std::string custom_id;
  ParsedRecord record = files_.parse(place, text, *parser_, custom_id);
  CARAVAN_ASSERT(std::holds_alternative<Record>(record), "{} passed its check and is faulty now",
                 files_.label(place));
  auto& good = std::get<Record>(record);
  if (!good.images.empty()) good.image_source = images_->source_of(files_.folder(place));
  return {index, std::move(custom_id), good.content_hash, std::move(record)};
}

std::vector<LargeRecord> Workload::too_large(std::int64_t kv_tokens) {
  std::vector<LargeRecord> large;
  for (std::int64_t index = 0; index < size(); ++index) {
    const Entry& entry = entries_[static_cast<std::size_t>(index)];
    if (entry.worst_case <= kv_tokens || faulty_.contains(index)) continue;
    const WorkItem checked = item(index);
    const BuiltPrompts built = builder_->build(std::get<Record>(checked.record));
    const auto* prompts = std::get_if<std::vector<TokenizedPrompt>>(&built);
    CARAVAN_ASSERT(prompts != nullptr, "record {} passed its check and cannot be built", index);
    LargeRecord largest{files_.label(entry.place), 0, 0};
    for (const TokenizedPrompt& prompt : *prompts) {
      const auto tokens = checked_cast<std::int64_t>(prompt.ids.size());
      if (tokens + prompt.max_tokens <= largest.prompt_tokens + largest.max_tokens) continue;
      largest.prompt_tokens = tokens;
      largest.max_tokens = prompt.max_tokens;
    }
    // The last new token is not fed back.
    if (largest.prompt_tokens + largest.max_tokens - 1 > kv_tokens) {
      large.push_back(std::move(largest));
    }
  }
  return large;
}

std::string Workload::fault_list(std::size_t most_lines) const {
  std::string files;
  for (const std::string& fault : files_.unreadable()) {
    files += (files.empty() ? "" : "\n") + log::escape_line(fault);
  }
  if (faulty_.empty()) return files;
  std::vector<std::int64_t> order;
  order.reserve(faulty_.size());
  for (const auto& [index, faulty] : faulty_) order.push_back(index);
  std::sort(order.begin(), order.end());
  std::string list = fmt::format("{}{}{} of {} records cannot be run:", files,
                                 files.empty() ? "" : "\n", order.size(), size());
  std::size_t lines = 0;
  for (std::size_t begin = 0, end = 0; begin < order.size(); begin = end, ++lines) {
    if (lines == most_lines) {
      return list + fmt::format("\n... and {} more records", order.size() - begin);
    }
    const RecordPlace& first = entries_[static_cast<std::size_t>(order[begin])].place;
    const std::string& message = faulty_.at(order[begin]).fault.message;
    const auto continues = [&](std::size_t next) {
      return next < order.size() && order[next] == order[next - 1] + 1 &&
             entries_[static_cast<std::size_t>(order[next])].place.file == first.file &&
             faulty_.at(order[next]).fault.message == message;
    };
    for (end = begin + 1; continues(end);) ++end;
    const RecordPlace& last = entries_[static_cast<std::size_t>(order[end - 1])].place;
    const std::string range =
        end - begin == 1 ? "" : fmt::format(" to {} ({} records)", last.line, end - begin);
    list += fmt::format("\n{}{}: {}", log::escape_line(files_.label(first)), range,
                        log::escape_line(message));
  }
  return list;
}

void Workload::require_valid() const {
  require_readable();
  CARAVAN_CHECK(faulty_.empty(), InputError,
                "{}\nCorrect them, or use --on-invalid=record to answer them with error lines",
                fault_list());
}

void Workload::require_readable() const {
  CARAVAN_CHECK(files_.unreadable().empty(), InputError, "{}", fault_list());
}

std::int64_t Workload::worst_case_tokens(std::int64_t sequences) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes;  // positions, how many sequences
  sizes.reserve(entries_.size());
  for (const Entry& entry : entries_) {
    if (entry.worst_case > 0) sizes.emplace_back(entry.worst_case, entry.sequences);
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  std::int64_t total = 0;
  for (const auto& [tokens, count] : sizes) {
    const std::int64_t taken = std::min(count, sequences);
    total += tokens * taken;
    sequences -= taken;
    if (sequences == 0) break;
  }
  return total;
}

std::int64_t Workload::worst_case_image_blocks(std::int64_t records) const {
  std::vector<std::int64_t> sizes;
  for (const Entry& entry : entries_) {
    if (entry.image_blocks > 0) sizes.push_back(entry.image_blocks);
  }
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < std::min(records, std::ssize(sizes)); ++i) {
    total += sizes[static_cast<std::size_t>(i)];
  }
  return images_ == nullptr ? 0 : std::min(total, images_->distinct_blocks());
}

std::int64_t Workload::lasting_image_blocks(std::int64_t records) const {
  if (images_ == nullptr) return 0;
  return std::min(worst_case_image_blocks(records) + images_->most_recurring_blocks(),
                  images_->distinct_blocks());
}

std::int64_t Workload::largest_image_group() const {
  std::int64_t largest = 0;
  for (const Entry& entry : entries_) largest = std::max<std::int64_t>(largest, entry.image_group);
  return largest;
}

std::int64_t Workload::most_seen_image_blocks() const {
  std::int64_t most = 0;
  for (const Entry& entry : entries_) most = std::max<std::int64_t>(most, entry.seen_blocks);
  return most;
}

std::vector<LargeImages> Workload::images_too_large(std::int64_t image_blocks) const {
  std::vector<LargeImages> large;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].image_group <= image_blocks) continue;
    large.push_back(
        {checked_cast<std::int64_t>(i), files_.label(entries_[i].place), entries_[i].image_group});
  }
  return large;
}

void Workload::refuse_images(const LargeImages& large, const std::string& message) {
  WorkItem refused = item(large.index);
  const Record& record = std::get<Record>(refused.record);
  Entry& entry = entries_[static_cast<std::size_t>(large.index)];
  const std::string param = record.images[images_->blocks_of(record).group_image].param;
  count_good(record, -1);
  images_->forget_uses(large.index, record);
  entry.worst_case = entry.sequences = 0;
  entry.has_images = false;
  entry.image_blocks = entry.image_group = entry.seen_blocks = 0;
  mark_faulty(large.index, {std::move(refused.custom_id),
                            refused.content_hash,
                            {400, "image_memory_exceeded", message, param}});
}

}  // namespace caravan::batch
