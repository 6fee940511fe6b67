#pragma once
// Archives as torch.save writes them, made in memory, right or deliberately wrong.

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "caravan/io/crc32.h"
#include "generated_files.h"

namespace caravan::test {

/// A zip archive of stored entries. Nothing is checked.
class ZipBuilder {
 public:
  enum class Form { kPlain, kZip64 };
  explicit ZipBuilder(Form form = Form::kPlain) : form_(form) {}

  void add(const std::string& name, const std::string& data) { add(name, data, 0, 0); }
  void add(const std::string& name, const std::string& data, std::uint16_t flags,
           std::uint16_t method) {
    add_record(name, data.size(), body_.size(), flags, method,
               io::crc32(std::as_bytes(std::span(data))));
    begin_entry(name);
    body_ += data;
  }
  /// As the last entry, `bytes` zeros that are not in front(): a sparse file can hold them.
  void add_hole(const std::string& name, std::uint64_t bytes) {
    const std::string zeros(1 << 20, '\0');
    std::uint32_t crc32 = 0;
    for (std::uint64_t left = bytes; left > 0; left -= std::min<std::uint64_t>(left, zeros.size()))
      crc32 = io::crc32(std::as_bytes(std::span(zeros)).first(std::min(left, zeros.size())), crc32);
    add_record(name, bytes, body_.size(), 0, 0, crc32);
    begin_entry(name);
    hole_bytes_ = bytes;
  }
  /// A record of the directory alone.
  void add_record(const std::string& name, std::uint64_t bytes, std::uint64_t offset,
                  std::uint16_t flags = 0, std::uint16_t method = 0, std::uint32_t crc32 = 0) {
    const bool big = form_ == Form::kZip64;
    std::string extra;
    if (big) {
      extra = u16(0x7777) + u16(1) + "x" + u16(1) + u16(24) + bytes_of_one(bytes) +
              bytes_of_one(bytes) + bytes_of_one(offset);
    }
    const auto u32 = [&](std::uint64_t value) {
      return bytes_of_one(big ? 0xffffffffU : static_cast<std::uint32_t>(value));
    };
    directory_ += bytes_of_one<std::uint32_t>(0x02014b50) + u16(0) + u16(0) + u16(flags) +
                  u16(method) + u16(0) + u16(0) + bytes_of_one(crc32) + u32(bytes) + u32(bytes) +
                  u16(name.size()) + u16(extra.size()) + u16(0) + std::string(8, '\0') +
                  u32(offset) + name + extra;
    ++count_;
  }
  std::string file(const std::string& comment = "") const { return front() + back(comment); }
  /// The file up to the hole, and behind it.
  const std::string& front() const { return body_; }
  std::string back(const std::string& comment = "") const {
    std::string out = directory_;
    const std::uint64_t begin = body_.size() + hole_bytes_;
    if (form_ == Form::kZip64) {
      const std::uint64_t end = begin + out.size();
      out += bytes_of_one<std::uint32_t>(0x06064b50) + bytes_of_one<std::uint64_t>(44) +
             std::string(12, '\0') + bytes_of_one<std::uint64_t>(count_) +
             bytes_of_one<std::uint64_t>(count_) + bytes_of_one<std::uint64_t>(directory_.size()) +
             bytes_of_one(begin);
      out += bytes_of_one<std::uint32_t>(0x07064b50) + std::string(4, '\0') + bytes_of_one(end) +
             bytes_of_one<std::uint32_t>(1);
      return out + end_record(0xffff, 0xffffffff, 0xffffffff, comment);
    }
    return out + end_record(count_, directory_.size(), begin, comment);
  }

 private:
  // As torch.save: sizes in the directory alone (bit 3) and padding up to 64 bytes.
  void begin_entry(const std::string& name) {
    const std::string extra(64 - (body_.size() + 30 + name.size()) % 64, 'Z');
    body_ += bytes_of_one<std::uint32_t>(0x04034b50) + u16(0) + u16(8) + u16(0) +
             std::string(16, '\0') + u16(name.size()) + u16(extra.size()) + name + extra;
  }
  static std::string u16(std::uint64_t value) {
    return bytes_of_one(static_cast<std::uint16_t>(value));
  }
  static std::string end_record(std::uint64_t count, std::uint64_t bytes, std::uint64_t offset,
                                const std::string& comment) {
    return bytes_of_one<std::uint32_t>(0x06054b50) + std::string(4, '\0') + u16(count) +
           u16(count) + bytes_of_one(static_cast<std::uint32_t>(bytes)) +
           bytes_of_one(static_cast<std::uint32_t>(offset)) + u16(comment.size()) + comment;
  }

  Form form_;
  std::string body_;
  std::string directory_;
  std::uint64_t count_ = 0;
  std::uint64_t hole_bytes_ = 0;
};

/// Pieces of a pickle.
namespace pickled {

inline std::string text(const std::string& value) {
  return "X" + bytes_of_one(static_cast<std::uint32_t>(value.size())) + value;
}
inline std::string integer(std::int64_t value) { return "\x8a\x08" + bytes_of_one(value); }
inline std::string integers(const std::vector<std::int64_t>& values) {
  std::string out = "(";
  for (const std::int64_t value : values) out += integer(value);
  return out + "t";
}
inline std::string global(const std::string& module, const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string storage(const std::string& type, const std::string& key, std::int64_t elements) {
  return "(" + text("storage") + global("torch", type) + text(key) + text("cpu") +
         integer(elements) + "tQ";
}
/// A tensor in `storage`, which is any piece of a pickle.
inline std::string tensor(const std::string& storage, std::int64_t offset,
                          const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides) {
  return global("torch._utils", "_rebuild_tensor_v2") + "(" + storage + integer(offset) +
         integers(shape) + integers(strides) + "\x89" + global("collections", "OrderedDict") +
         ")RtR";
}
/// A dict from pieces that are keys and values.
inline std::string dict(const std::string& items) { return "}(" + items + "u"; }
inline std::string whole(const std::string& value) { return "\x80\x02" + value + "."; }

}  // namespace pickled

/// A state dict with one storage per tensor.
class PthBuilder {
 public:
  void add(const std::string& name, const std::vector<std::int64_t>& shape,
           const std::vector<float>& values) {
    add_raw(name, "FloatStorage", shape, bytes_of(values), 4);
  }
  void add_raw(const std::string& name, const std::string& type,
               const std::vector<std::int64_t>& shape, const std::string& bytes,
               std::size_t element) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
    const std::string key = std::to_string(storages_.size());
    items_ += pickled::text(name) +
              pickled::tensor(
                  pickled::storage(type, key, static_cast<std::int64_t>(bytes.size() / element)), 0,
                  shape, strides);
    storages_.push_back(bytes);
  }
  std::string file() const { return file_of(pickled::whole(pickled::dict(items_))); }
  /// The archive with another pickle.
  std::string file_of(const std::string& pickle) const {
    ZipBuilder zip;
    zip.add("archive/data.pkl", pickle);
    zip.add("archive/byteorder", "little");
    for (std::size_t i = 0; i < storages_.size(); ++i)
      zip.add("archive/data/" + std::to_string(i), storages_[i]);
    return zip.file();
  }

 private:
  std::string items_;
  std::vector<std::string> storages_;
};

}  // namespace caravan::test
