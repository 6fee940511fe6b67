#include "caravan/ops/packed_weight.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "caravan/core/checked_cast.h"
#include "caravan/core/clock.h"
#include "caravan/core/error.h"
#include "quantized_panels.h"

namespace caravan::ops {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

/// Maps `bytes` of zero pages, 2 MiB aligned where huge pages can help.
void* map_pages(std::int64_t bytes) {
  const std::int64_t slack = bytes >= kHugePage ? kHugePage : 0;
  const auto mapped = static_cast<std::size_t>(bytes + slack);
  void* const address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw Error(ExitCode::kConfig,
                fmt::format("cannot allocate {} of memory: {}; ask for a smaller --kv-memory or "
                            "more ranks",
                            format_bytes(static_cast<double>(bytes)), std::strerror(errno)));
  }
  if (slack == 0) return address;
  auto* const first = static_cast<std::byte*>(address);
  const auto misalignment = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(first) %
                                                      static_cast<std::uintptr_t>(kHugePage));
  const std::int64_t before = misalignment == 0 ? 0 : kHugePage - misalignment;
  // Failing to give back the ends would only keep address space.
  if (before > 0) munmap(first, static_cast<std::size_t>(before));
  if (slack > before) munmap(first + before + bytes, static_cast<std::size_t>(slack - before));
  // Without huge pages everything works, only slower.
  madvise(first + before, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
  return first + before;
}

template <typename Element>
void fill_rows(Element* panels, std::int64_t in, std::int64_t first, std::int64_t count,
               const Element* source) {
  constexpr std::int64_t kPanel = PackedWeight::kPanel;
  for (std::int64_t row = 0; row < count; ++row) {
    const std::int64_t out = first + row;
    Element* const lane = panels + out / kPanel * in * kPanel + out % kPanel;
    for (std::int64_t k = 0; k < in; ++k) lane[k * kPanel] = source[row * in + k];
  }
}

/// Panel by panel, so that each line of the panel is written while it is in the cache.
template <typename Element>
void fill_rows_by_panel(Element* panels, std::int64_t in, std::int64_t first, std::int64_t count,
                        const Element* source) {
  constexpr std::int64_t kPanel = PackedWeight::kPanel;
  constexpr std::int64_t kColumns = 64;
  std::int64_t row = 0;
  while (row < count) {
    const std::int64_t out = first + row;
    const std::int64_t rows = std::min(count - row, kPanel - out % kPanel);
    if (rows < kPanel) {
      fill_rows(panels, in, out, rows, source + row * in);
    } else {
      Element* const panel = panels + out * in;
      for (std::int64_t begin = 0; begin < in; begin += kColumns) {
        const std::int64_t end = std::min(begin + kColumns, in);
        for (std::int64_t lane = 0; lane < kPanel; ++lane) {
          const Element* const from = source + (row + lane) * in;
          for (std::int64_t k = begin; k < end; ++k) panel[k * kPanel + lane] = from[k];
        }
      }
    }
    row += rows;
  }
}

template <typename Element>
void fill_columns(Element* panels, std::int64_t in, std::int64_t out_features, Range columns,
                  const Element* source) {
  constexpr std::int64_t kPanel = PackedWeight::kPanel;
  for (std::int64_t k = columns.begin; k < columns.end; ++k) {
    const Element* const from = source + (k - columns.begin) * out_features;
    for (std::int64_t out = 0; out < out_features; out += kPanel) {
      const std::int64_t lanes = std::min(kPanel, out_features - out);
      std::memcpy(panels + out * in + k * kPanel, from + out,
                  static_cast<std::size_t>(lanes) * sizeof(Element));
    }
  }
}

/// Rows as pairs of columns: [panel][k / 2][32][2]. Panel by panel, as above.
void fill_pair_rows(std::uint16_t* panels, std::int64_t panel_elements, std::int64_t in,
                    std::int64_t first, std::int64_t count, const std::uint16_t* source) {
  constexpr std::int64_t kPanel = PackedWeight::kPanel;
  constexpr std::int64_t kColumns = 128;
  for (std::int64_t row = 0; row < count;) {
    const std::int64_t out = first + row;
    const std::int64_t rows = std::min(count - row, kPanel - out % kPanel);
    std::uint16_t* const panel = panels + out / kPanel * panel_elements + out % kPanel * 2;
    for (std::int64_t begin = 0; begin < in; begin += kColumns) {
      const std::int64_t end = std::min(begin + kColumns, in);
      for (std::int64_t lane = 0; lane < rows; ++lane) {
        const std::uint16_t* const from = source + (row + lane) * in;
        std::uint16_t* const target = panel + lane * 2;
        std::int64_t k = begin;
        for (; k + 1 < end; k += 2) std::memcpy(target + k * kPanel, from + k, 4);
        if (k < end) target[k * kPanel] = from[k];
      }
    }
    row += rows;
  }
}

void fill_pair_columns(std::uint16_t* panels, std::int64_t panel_elements,
                       std::int64_t out_features, Range columns, const std::uint16_t* source) {
  constexpr std::int64_t kPanel = PackedWeight::kPanel;
  for (std::int64_t k = columns.begin; k < columns.end; ++k) {
    const std::uint16_t* const from = source + (k - columns.begin) * out_features;
    for (std::int64_t out = 0; out < out_features; out += kPanel) {
      const std::int64_t lanes = std::min(kPanel, out_features - out);
      std::uint16_t* const target =
          panels + out / kPanel * panel_elements + k / 2 * 2 * kPanel + k % 2;
      for (std::int64_t lane = 0; lane < lanes; ++lane) target[lane * 2] = from[out + lane];
    }
  }
}

/// `stride(k)` elements lie between element 0 and element k of a row.
template <typename Element, typename ToFloat, typename Stride>
void expand_row(const Element* lane, std::int64_t in, const ToFloat& to_float, const Stride& stride,
                float* target) {
  for (std::int64_t k = 0; k < in; ++k) target[k] = to_float(lane[stride(k)]);
}

}  // namespace

at::Tensor allocate_huge(std::int64_t bytes) {
  CARAVAN_ASSERT(bytes >= 0, "cannot allocate {} bytes", bytes);
  if (bytes == 0) return at::empty({0}, at::kByte);
  void* const address = map_pages(bytes);
  const auto length = static_cast<std::size_t>(bytes);
  return at::from_blob(
      address, {bytes}, [length](void* pages) { munmap(pages, length); }, at::kByte);
}

PackedWeight::PackedWeight(std::int64_t out_features, std::int64_t in_features, DType dtype,
                           Compute compute)
    : out_features_(out_features), in_features_(in_features), dtype_(dtype), compute_(compute) {
  CARAVAN_ASSERT(out_features >= 0 && in_features >= 0, "a weight of {} x {}", out_features,
                 in_features);
  CARAVAN_ASSERT(compute == Compute::kFloat32 || dtype == DType::kBFloat16,
                 "bf16 computing needs bf16 weights, not {}", dtype_name(dtype));
  CARAVAN_ASSERT(!is_quantized(dtype) || in_features % kQuantGroup == 0,
                 "{} inputs are no whole groups of {}", in_features, kQuantGroup);
  // Never null, also without elements: kernels form addresses from it.
  storage_ = allocate_huge(std::max<std::int64_t>(bytes(), 1));
}

void PackedWeight::set_output_rows(std::int64_t first, std::int64_t count, const void* source) {
  CARAVAN_ASSERT(!is_quantized(dtype_), "plain rows for a weight of {}", dtype_name(dtype_));
  CARAVAN_ASSERT(first >= 0 && count >= 0 && first + count <= out_features_,
                 "rows [{}, {}) of a weight with {} outputs", first, first + count, out_features_);
  if (count == 0 || in_features_ == 0) return;
  // Only the width of an element matters here.
  if (compute_ == Compute::kBFloat16) {
    fill_pair_rows(static_cast<std::uint16_t*>(storage_.data_ptr()), panel_elements(), in_features_,
                   first, count, static_cast<const std::uint16_t*>(source));
  } else if (element_bytes(dtype_) == 4) {
    fill_rows_by_panel(static_cast<std::uint32_t*>(storage_.data_ptr()), in_features_, first, count,
                       static_cast<const std::uint32_t*>(source));
  } else {
    fill_rows_by_panel(static_cast<std::uint16_t*>(storage_.data_ptr()), in_features_, first, count,
                       static_cast<const std::uint16_t*>(source));
  }
}

void PackedWeight::set_input_rows(std::int64_t first, std::int64_t count, const void* source) {
  CARAVAN_ASSERT(!is_quantized(dtype_), "plain rows for a weight of {}", dtype_name(dtype_));
  CARAVAN_ASSERT(first >= 0 && count >= 0 && first + count <= in_features_,
                 "columns [{}, {}) of a weight with {} inputs", first, first + count, in_features_);
  const Range columns{first, first + count};
  if (columns.empty() || out_features_ == 0) return;
  if (compute_ == Compute::kBFloat16) {
    fill_pair_columns(static_cast<std::uint16_t*>(storage_.data_ptr()), panel_elements(),
                      out_features_, columns, static_cast<const std::uint16_t*>(source));
  } else if (element_bytes(dtype_) == 4) {
    fill_columns(static_cast<std::uint32_t*>(storage_.data_ptr()), in_features_, out_features_,
                 columns, static_cast<const std::uint32_t*>(source));
  } else {
    fill_columns(static_cast<std::uint16_t*>(storage_.data_ptr()), in_features_, out_features_,
                 columns, static_cast<const std::uint16_t*>(source));
  }
}

void PackedWeight::set_output_rows(std::int64_t first, std::int64_t count,
                                   const QuantizedRows& source) {
  CARAVAN_ASSERT(is_quantized(dtype_), "quantized rows for a weight of {}", dtype_name(dtype_));
  CARAVAN_ASSERT(first >= 0 && count >= 0 && first + count <= out_features_,
                 "rows [{}, {}) of a weight with {} outputs", first, first + count, out_features_);
  fill_quantized_rows(dtype_, storage_.data_ptr(), in_features_, {first, first + count}, source);
}

void PackedWeight::set_input_rows(std::int64_t first, std::int64_t count,
                                  const QuantizedRows& source) {
  CARAVAN_ASSERT(is_quantized(dtype_), "quantized rows for a weight of {}", dtype_name(dtype_));
  CARAVAN_ASSERT(first >= 0 && count >= 0 && first + count <= in_features_ &&
                     first % kQuantGroup == 0 && count % kQuantGroup == 0,
                 "columns [{}, {}) of a weight with {} inputs in groups of {}", first,
                 first + count, in_features_, kQuantGroup);
  fill_quantized_columns(dtype_, storage_.data_ptr(), in_features_, out_features_,
                         {first, first + count}, source);
}

const void* PackedWeight::data() const {
  return storage_.defined() ? storage_.const_data_ptr() : nullptr;
}

std::int64_t PackedWeight::panel_bytes() const {
  return is_quantized(dtype_) ? quantized_panel_bytes(dtype_, in_features_)
                              : panel_elements() * element_bytes(dtype_);
}

std::int64_t PackedWeight::bytes() const { return num_panels() * panel_bytes(); }

float PackedWeight::element(std::int64_t out, std::int64_t k) const {
  CARAVAN_ASSERT(out >= 0 && out < out_features_ && k >= 0 && k < in_features_,
                 "element [{}, {}] of a weight of {} x {}", out, k, out_features_, in_features_);
  if (is_quantized(dtype_)) {
    std::vector<float> row(static_cast<std::size_t>(in_features_));
    copy_row(out, row.data());
    return row[static_cast<std::size_t>(k)];
  }
  const std::int64_t group = k_group();
  const std::int64_t index = out / kPanel * panel_elements() + k / group * group * kPanel +
                             out % kPanel * group + k % group;
  return load_element(data(), dtype_, index);
}

void PackedWeight::copy_row(std::int64_t out, float* target) const {
  CARAVAN_ASSERT(out >= 0 && out < out_features_, "row {} of a weight with {} outputs", out,
                 out_features_);
  if (is_quantized(dtype_)) return copy_quantized_row(dtype_, data(), in_features_, out, target);
  const auto* const bytes = static_cast<const std::byte*>(data());
  const std::int64_t first = out / kPanel * panel_elements() + out % kPanel * k_group();
  const std::byte* const lane = bytes + first * element_bytes(dtype_);
  const auto apart = [](std::int64_t k) { return k * kPanel; };
  const auto in_pairs = [](std::int64_t k) { return k / 2 * 2 * kPanel + k % 2; };
  const auto* const halves = reinterpret_cast<const std::uint16_t*>(lane);
  switch (dtype_) {
    case DType::kFloat32:
      return expand_row(
          reinterpret_cast<const float*>(lane), in_features_, [](float value) { return value; },
          apart, target);
    case DType::kBFloat16:
      if (compute_ == Compute::kBFloat16) {
        return expand_row(halves, in_features_, bf16_to_float, in_pairs, target);
      }
      return expand_row(halves, in_features_, bf16_to_float, apart, target);
    case DType::kFloat16: return expand_row(halves, in_features_, fp16_to_float, apart, target);
    case DType::kInt8:
    case DType::kInt4: return;
  }
}

}  // namespace caravan::ops
