#pragma once
// Owners and calls of libvips: the only place that opens a file with it.
//
// libvips is started at the first use, with every loader blocked except those named here, without
// its cache and without its threads: pixels are computed by the caller, strip by strip.

#include <vips/vips.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "caravan/core/unique_handle.h"
#include "container.h"

namespace caravan::image {

struct VipsImageTraits {
  using Handle = VipsImage*;
  static Handle null() noexcept { return nullptr; }
  static void release(Handle handle) noexcept { g_object_unref(handle); }
};
using VipsOwner = UniqueHandle<VipsImageTraits>;

struct VipsRegionTraits {
  using Handle = VipsRegion*;
  static Handle null() noexcept { return nullptr; }
  static void release(Handle handle) noexcept { g_object_unref(handle); }
};
using VipsRegionOwner = UniqueHandle<VipsRegionTraits>;

/// Starts libvips, whose state belongs to the whole process, once. @throws DeviceError if it cannot
/// be started.
void start_vips();

/// Opens an image and reads its header; `bytes` must live as long as the result. Any container but
/// BMP. Null if libvips refuses it.
VipsOwner open_vips(Container container, std::span<const std::byte> bytes);

/// Rows that are decoded at a time.
inline constexpr int kStripRows = 64;

/// Calls `use` for every row from the top, with its samples. False if decoding failed: `row_failed`
/// is then the first row that is missing, to the nearest strip.
bool for_each_row(VipsImage* image, const std::function<void(std::int64_t, const void*)>& use,
                  std::int64_t* row_failed);

/// The library's own text of what failed since the last call goes to the debug log. It is not for
/// results: all threads write into one buffer.
void log_vips_errors();

/// Frees what libvips keeps for the calling thread; last call of a thread that used it.
void leave_vips_thread();

}  // namespace caravan::image
