#pragma once
// Where the bytes of an image come from: the `url` of an `image_url` part or of `image:`.
//
// Accepted are data URIs (`data:image/png;base64,...`; the media type is ignored, the content
// decides) and files below one folder, the media root: a path relative to it, an absolute path or a
// file:// URI. Nothing outside of that folder can be read, whether by `..`, by links or through
// devices and pipes. There is no network. Leaves out: what the bytes mean (decode.h).

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "caravan/io/input_file.h"

namespace caravan::image {

class ImageSource {
 public:
  /// @param media_root  a folder; empty: files are refused, data URIs alone are accepted.
  /// @param max_bytes   longest image, checked before it is read or decoded from base64.
  /// @throws MissingInputError if `media_root` is not a folder that can be opened.
  /// @param read        reads files: pread(2), or a stand-in in tests.
  ImageSource(const std::string& media_root, std::int64_t max_bytes,
              io::InputFile::ReadFunction read = ::pread);

  /// The bytes of the image. Safe to call from several threads at once.
  /// @throws InputError for every fault that belongs to the record that names the image; IoError if
  ///         the file system fails, or the process has no descriptor left.
  std::vector<std::byte> read(std::string_view url) const;

 private:
  std::vector<std::byte> read_file(const std::string& path) const;
  std::string canonical_below_root(const std::string& path) const;

  std::string media_root_;  // without links, no slash at its end
  io::FileDescriptor root_;
  std::int64_t max_bytes_;
  io::InputFile::ReadFunction read_;
};

/// `url` for messages: a path as it is, of a data URI only its length; short, without control
/// characters.
std::string describe_source(std::string_view url);

}  // namespace caravan::image
