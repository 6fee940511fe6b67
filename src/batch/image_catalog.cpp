#include "caravan/batch/image_catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/image/pipeline.h"
#include "record_faults.h"

namespace caravan::batch {
namespace {

// Addresses may be long: most of a data: URI is the image.
ImageKey address_key(std::size_t source, std::string_view url) {
  io::Sha256 hash;
  hash.update(fmt::format("{}:", source));
  hash.update(url);
  return image_key(hash.hex_digest());
}

}  // namespace

ImageKey image_key(std::string_view sha256) {
  CARAVAN_ASSERT(sha256.size() == 64, "a SHA-256 of {} digits", sha256.size());
  ImageKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) {
    unsigned int value = 0;
    std::from_chars(sha256.data() + 2 * i, sha256.data() + 2 * i + 2, value, 16);
    key[i] = static_cast<char>(value);
  }
  return key;
}

std::size_t ImageCatalog::KeyHash::operator()(const ImageKey& key) const {
  std::size_t hash = 0;
  std::memcpy(&hash, key.data(), sizeof(hash));
  return hash;
}

ImageCatalog::ImageCatalog(ImageOptions options) : options_(std::move(options)) {
  image::check(options_.tiling);
  if (options_.media_root) source_of("");
}

std::size_t ImageCatalog::source_of(const std::string& folder) {
  const std::string& root = options_.media_root ? *options_.media_root : folder;
  const auto found = std::find(roots_.begin(), roots_.end(), root);
  if (found != roots_.end()) return static_cast<std::size_t>(found - roots_.begin());
  sources_.emplace_back(root, options_.max_bytes);
  roots_.push_back(root);
  return roots_.size() - 1;
}

std::vector<image::ImageSource> ImageCatalog::open_sources() const {
  std::vector<image::ImageSource> sources;
  for (const std::string& root : roots_) sources.emplace_back(root, options_.max_bytes);
  return sources;
}

const ImageCatalog::Entry& ImageCatalog::look_at(std::size_t source, const std::string& url) {
  const auto [found, is_new] = entries_.try_emplace(address_key(source, url));
  Entry& entry = found->second;
  if (!is_new) return entry;
  try {
    const std::vector<std::byte> bytes = sources_.at(source).read(url);
    const image::ImageHeader header = image::read_header(bytes, options_.decoding);
    const image::TileLayout layout =
        image::choose_layout(header.width, header.height, options_.tiling);
    const std::string content = image::content_hash(bytes);
    hash_.update(content);
    entry.facts = {{layout.rows, layout.columns}, image_key(content)};
    const std::int64_t blocks = options_.blocks_of(layout.num_tiles());
    if (distinct_.try_emplace(entry.facts.content, Content{blocks, {}}).second) {
      distinct_blocks_ += blocks;
      decode_bytes_ += header.decode_bytes;
      largest_decode_bytes_ = std::max(largest_decode_bytes_, header.decode_bytes);
    }
  } catch (const InputError& error) {
    hash_.update("fault");
    entry.fault = checked_cast<std::int32_t>(faults_.size());
    faults_.emplace_back(error.what());
  }
  return entry;
}

std::variant<ImageBlocks, RecordFault> ImageCatalog::check(const Record& record,
                                                           std::optional<std::int64_t> index) {
  std::vector<ImageFacts> facts;
  std::set<ImageKey> distinct;
  std::int64_t prepared_bytes = 0;
  RecordFaults faults;
  for (const RecordImage& image : record.images) {
    const Entry& entry = look_at(record.image_source, image.url);
    ++num_checked_;
    if (entry.fault >= 0) {
      faults.add({400, "invalid_image",
                  fmt::format("image {}: {}", image::describe_source(image.url),
                              faults_[static_cast<std::size_t>(entry.fault)]),
                  image.param});
      continue;
    }
    facts.push_back(entry.facts);
    if (distinct.insert(entry.facts.content).second) {
      prepared_bytes += entry.facts.grid.num_tiles() * options_.tiling.tile_bytes();
    }
  }
  if (faults.any()) return faults.joined();
  largest_record_bytes_ = std::max(largest_record_bytes_, prepared_bytes);
  if (index && computes(record)) {
    for (const ImageKey& image : distinct) {
      distinct_.at(image).records.push_back(checked_cast<std::int32_t>(*index));
    }
  }
  return blocks_of(record, facts);
}

ImageBlocks ImageCatalog::blocks_of(const Record& record) const {
  std::vector<ImageFacts> known;
  for (const RecordImage& image : record.images) {
    known.push_back(facts(record.image_source, image.url));
  }
  return blocks_of(record, known);
}

ImageBlocks ImageCatalog::blocks_of(const Record& record, std::span<const ImageFacts> facts) const {
  ImageBlocks blocks;
  std::set<ImageKey> in_record;
  std::size_t next = 0;
  std::vector<std::span<const std::size_t>> texts = {record.image_offsets};
  for (const text::ChatMessage& message : record.messages) texts.push_back(message.image_offsets);
  for (const std::span<const std::size_t> offsets : texts) {
    std::set<ImageKey> in_group;
    std::size_t group_image = next;
    std::int64_t group = 0;
    std::int64_t seen = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i, ++next) {
      if (i > 0 && offsets[i] != offsets[i - 1]) {
        in_group.clear();
        group_image = next;
        group = seen = 0;
      }
      const ImageFacts& image = facts[next];
      const std::int64_t size = options_.blocks_of(image.grid.num_tiles());
      if (in_record.insert(image.content).second) blocks.all += size;
      if (in_group.insert(image.content).second) group += size;
      seen += size;
      blocks.most_seen = std::max(blocks.most_seen, seen);
      if (group <= blocks.largest_group) continue;
      blocks.largest_group = group;
      blocks.group_image = group_image;
    }
  }
  return blocks;
}

void ImageCatalog::forget_uses(std::int64_t index, const Record& record) {
  for (const RecordImage& image : record.images) {
    std::erase(distinct_.at(facts(record.image_source, image.url).content).records, index);
  }
}

std::int64_t ImageCatalog::next_use(const ImageFacts& image, std::int64_t index,
                                    const std::function<bool(std::int64_t index)>& is_done) const {
  const std::vector<std::int32_t>& records = distinct_.at(image.content).records;
  auto next = std::upper_bound(records.begin(), records.end(), index);
  while (next != records.end() && is_done && is_done(*next)) ++next;
  return next == records.end() ? engine::PromptImage::kNeverAgain : *next;
}

std::int64_t ImageCatalog::most_recurring_blocks() const {
  std::vector<std::pair<std::int32_t, std::int64_t>> changes;  // from a record on, of blocks
  for (const auto& [key, content] : distinct_) {
    if (content.records.size() < 2) continue;
    changes.emplace_back(content.records.front(), content.blocks);
    changes.emplace_back(content.records.back(), -content.blocks);
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const auto& [record, change] : changes) most = std::max(most, now += change);
  return most;
}

std::int64_t ImageCatalog::preparation_bytes(std::int64_t max_prepared_bytes) const {
  const std::int64_t together = image::PipelineOptions().max_decode_bytes;
  return std::max(largest_record_bytes_,
                  std::min(max_prepared_bytes, num_distinct() * options_.tiling.max_bytes())) +
         std::max(largest_decode_bytes_, std::min(together, decode_bytes_));
}

const ImageFacts& ImageCatalog::facts(std::size_t source, std::string_view url) const {
  const auto found = entries_.find(address_key(source, url));
  CARAVAN_ASSERT(found != entries_.end() && found->second.fault < 0,
                 "image {} was not checked, or has a fault", image::describe_source(url));
  return found->second.facts;
}

}  // namespace caravan::batch
