#pragma once
// Which libraries decode images. Pixels of PNG, GIF, BMP and lossless WebP are the same with any;
// those of JPEG, of lossy WebP and behind colour profiles are as exact as a library cares to be.

#include <string>

namespace caravan::image {

/// "libvips 8.14.1, libjpeg.so.62.3.0, ...". Does not start libvips.
std::string decoder_versions();

/// Hash of what some small built-in pictures decode to here: 16 hexadecimal digits.
/// @throws DeviceError if libvips cannot be started; InputError if it cannot decode one of them.
std::string decoder_probe();

}  // namespace caravan::image
