#include "vips_image.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::image {
namespace {

constexpr const char* kLoaders[] = {"VipsForeignLoadJpeg", "VipsForeignLoadPng",
                                    "VipsForeignLoadWebp", "VipsForeignLoadNsgif",
                                    "VipsForeignLoadTiff"};

// libvips itself is global to a process and cannot be started twice.
std::once_flag g_vips_started;

void write_to_log(const gchar* /*domain*/, GLogLevelFlags /*level*/, const gchar* text,
                  gpointer /*unused*/) {
  log::debug("libvips: {}", text);
}

void start_once() {
  if (VIPS_INIT("caravan") != 0) {
    const std::string text = vips_error_buffer();
    vips_error_clear();
    throw DeviceError(fmt::format("libvips, which decodes images, cannot be started: {}", text));
  }
  // The image's owner gets an error; the text of the libraries belongs on nobody's screen.
  g_log_set_handler("VIPS", static_cast<GLogLevelFlags>(G_LOG_LEVEL_MASK), write_to_log, nullptr);
  vips_block_untrusted_set(TRUE);
  vips_operation_block_set("VipsForeignLoad", TRUE);
  for (const char* loader : kLoaders) vips_operation_block_set(loader, FALSE);
  vips_cache_set_max(0);
  vips_concurrency_set(1);
}

using Loader = int (*)(void*, std::size_t, VipsImage**, ...);

Loader loader_of(Container container) {
  switch (container) {
    case Container::kJpeg: return vips_jpegload_buffer;
    case Container::kPng: return vips_pngload_buffer;
    case Container::kWebp: return vips_webpload_buffer;
    case Container::kGif: return vips_gifload_buffer;
    case Container::kTiff: return vips_tiffload_buffer;
    case Container::kBmp: break;
  }
  return nullptr;
}

}  // namespace

void start_vips() { std::call_once(g_vips_started, start_once); }

VipsOwner open_vips(Container container, std::span<const std::byte> bytes) {
  const Loader load = loader_of(container);
  CARAVAN_ASSERT(load != nullptr, "no loader for {}", container_name(container));
  start_vips();
  VipsImage* image = nullptr;
  // The C interface takes no const; it does not write.
  void* const data = const_cast<std::byte*>(bytes.data());
  if (load(data, bytes.size(), &image, "access", VIPS_ACCESS_SEQUENTIAL, "fail_on",
           VIPS_FAIL_ON_ERROR, nullptr) != 0) {
    log_vips_errors();
    return VipsOwner();
  }
  return VipsOwner(image);
}

bool for_each_row(VipsImage* image, const std::function<void(std::int64_t, const void*)>& use,
                  std::int64_t* row_failed) {
  const VipsRegionOwner region(vips_region_new(image));
  CARAVAN_ASSERT(region, "libvips made no region");
  for (int top = 0; top < image->Ysize; top += kStripRows) {
    const VipsRect strip = {0, top, image->Xsize, std::min(kStripRows, image->Ysize - top)};
    if (vips_region_prepare(region.get(), &strip) != 0) {
      log_vips_errors();
      *row_failed = top;
      return false;
    }
    for (int row = top; row < top + strip.height; ++row)
      use(row, VIPS_REGION_ADDR(region.get(), 0, row));
  }
  return true;
}

void log_vips_errors() {
  if (log::enabled(log::Level::kDebug)) log::debug("libvips: {}", vips_error_buffer());
  vips_error_clear();
}

void leave_vips_thread() { vips_thread_shutdown(); }

}  // namespace caravan::image
