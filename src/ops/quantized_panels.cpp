#include "quantized_panels.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "caravan/core/error.h"
#include "cpu/quantized_groups.h"

namespace caravan::ops {
namespace {

constexpr std::int64_t kPanel = PackedWeight::kPanel;
static_assert(kPanel == std::size(Int8Group{}.scales) && kQuantGroup == kPanel);

void set_code(Int8Group& group, std::int64_t k, std::int64_t lane, std::uint8_t code) {
  group.codes[k][lane] = static_cast<std::int8_t>(code);
}
void set_code(Int4Group& group, std::int64_t k, std::int64_t lane, std::uint8_t code) {
  std::uint8_t& pair = group.codes[k][lane % 16];
  pair = static_cast<std::uint8_t>(lane < 16 ? (pair & 0xf0U) | code
                                             : (pair & 0x0fU) | static_cast<unsigned>(code << 4));
}
void set_minimum(Int8Group&, std::int64_t, const std::uint16_t*, std::int64_t) {}
void set_minimum(Int4Group& group, std::int64_t lane, const std::uint16_t* minimums,
                 std::int64_t index) {
  group.minimums[lane] = minimums[index];
}

// Codes as they come: one a byte, or pairs of inputs.
template <typename Group>
constexpr std::int64_t kCodesPerByte = 1;
template <>
constexpr std::int64_t kCodesPerByte<Int4Group> = 2;

std::uint8_t nibble(std::uint8_t pair, std::int64_t input) {
  return static_cast<std::uint8_t>(input % 2 == 0 ? pair & 0x0fU : pair >> 4);
}

template <typename Group>
Group& group_of(void* panels, std::int64_t in, std::int64_t out, std::int64_t k) {
  return static_cast<Group*>(panels)[out / kPanel * (in / kQuantGroup) + k / kQuantGroup];
}

template <typename Group>
void fill_rows(void* panels, std::int64_t in, Range outputs, const QuantizedRows& rows) {
  constexpr std::int64_t kPerByte = kCodesPerByte<Group>;
  const std::int64_t groups = in / kQuantGroup;
  // Panel by panel, so that a group is in the cache while it is filled.
  for (std::int64_t first = outputs.begin; first < outputs.end;) {
    const std::int64_t end = std::min(outputs.end, (first / kPanel + 1) * kPanel);
    for (std::int64_t g = 0; g < groups; ++g) {
      Group& group = group_of<Group>(panels, in, first, g * kQuantGroup);
      for (std::int64_t out = first; out < end; ++out) {
        const std::int64_t row = out - outputs.begin;
        const std::int64_t lane = out % kPanel;
        const std::uint8_t* const codes = rows.codes + (row * in + g * kQuantGroup) / kPerByte;
        for (std::int64_t k = 0; k < kQuantGroup; ++k) {
          const std::uint8_t code = codes[k / kPerByte];
          set_code(group, k, lane, kPerByte == 1 ? code : nibble(code, k));
        }
        group.scales[lane] = rows.scales[row * groups + g];
        set_minimum(group, lane, rows.minimums, row * groups + g);
      }
    }
    first = end;
  }
}

template <typename Group>
void fill_columns(void* panels, std::int64_t in, std::int64_t out_features, Range columns,
                  const QuantizedRows& rows) {
  constexpr std::int64_t kPerByte = kCodesPerByte<Group>;
  for (std::int64_t begin = columns.begin; begin < columns.end; begin += kQuantGroup) {
    const std::int64_t first = begin - columns.begin;
    for (std::int64_t out = 0; out < out_features; out += kPanel) {
      Group& group = group_of<Group>(panels, in, out, begin);
      const std::int64_t lanes = std::min(kPanel, out_features - out);
      for (std::int64_t k = 0; k < kQuantGroup; ++k) {
        const std::uint8_t* const codes = rows.codes + (first + k) / kPerByte * out_features + out;
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
          set_code(group, k, lane, kPerByte == 1 ? codes[lane] : nibble(codes[lane], k));
        }
      }
      const std::int64_t index = first / kQuantGroup * out_features + out;
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        group.scales[lane] = rows.scales[index + lane];
        set_minimum(group, lane, rows.minimums, index + lane);
      }
    }
  }
}

}  // namespace

std::int64_t quantized_panel_bytes(DType dtype, std::int64_t in) {
  const std::size_t bytes = dtype == DType::kInt8 ? sizeof(Int8Group) : sizeof(Int4Group);
  return in / kQuantGroup * static_cast<std::int64_t>(bytes);
}

void fill_quantized_rows(DType dtype, void* panels, std::int64_t in, Range outputs,
                         const QuantizedRows& rows) {
  if (dtype == DType::kInt8) return fill_rows<Int8Group>(panels, in, outputs, rows);
  fill_rows<Int4Group>(panels, in, outputs, rows);
}

void fill_quantized_columns(DType dtype, void* panels, std::int64_t in, std::int64_t out_features,
                            Range columns, const QuantizedRows& rows) {
  if (dtype == DType::kInt8) {
    return fill_columns<Int8Group>(panels, in, out_features, columns, rows);
  }
  fill_columns<Int4Group>(panels, in, out_features, columns, rows);
}

void copy_quantized_row(DType dtype, const void* panels, std::int64_t in, std::int64_t out,
                        float* target) {
  const std::int64_t groups = in / kQuantGroup;
  const std::int64_t lane = out % kPanel;
  for (std::int64_t index = 0; index < groups; ++index, target += kQuantGroup) {
    const std::int64_t place = out / kPanel * groups + index;
    if (dtype == DType::kInt8) {
      const Int8Group& group = static_cast<const Int8Group*>(panels)[place];
      const float scale = fp16_to_float(group.scales[lane]);
      for (std::int64_t k = 0; k < kQuantGroup; ++k) {
        target[k] = static_cast<float>(group.codes[k][lane]) * scale;
      }
    } else {
      const Int4Group& group = static_cast<const Int4Group*>(panels)[place];
      const float scale = fp16_to_float(group.scales[lane]);
      const float minimum = fp16_to_float(group.minimums[lane]);
      for (std::int64_t k = 0; k < kQuantGroup; ++k) {
        const std::uint8_t pair = group.codes[k][lane % 16];
        target[k] =
            std::fma(static_cast<float>(lane < 16 ? pair & 0x0fU : pair >> 4), scale, minimum);
      }
    }
  }
}

}  // namespace caravan::ops
