#include "support/reference_ops.h"

#include <ATen/ops/full.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace caravan::testing {

std::vector<ops::Isa> supported_isas() {
  std::vector<ops::Isa> isas;
  for (const ops::Isa isa : {ops::Isa::kGeneric, ops::Isa::kAvx2, ops::Isa::kAvx512}) {
    if (ops::isa_supported(isa)) isas.push_back(isa);
  }
  return isas;
}

at::Tensor random_rows(Random& random, std::int64_t rows, std::int64_t columns,
                       std::int64_t extra) {
  at::Tensor all =
      at::full({rows, columns + extra}, std::numeric_limits<float>::quiet_NaN(), at::kFloat);
  std::normal_distribution<float> normal;
  auto* const data = all.data_ptr<float>();
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t k = 0; k < columns; ++k) data[n * (columns + extra) + k] = normal(random);
  }
  return all.narrow(1, 0, columns);
}

std::vector<std::byte> encode(const std::vector<float>& values, DType dtype) {
  const auto width = static_cast<std::size_t>(element_bytes(dtype));
  std::vector<std::byte> bytes(values.size() * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kFloat32) {
      std::memcpy(bytes.data() + i * width, &values[i], width);
    } else {
      const std::uint16_t bits =
          dtype == DType::kBFloat16 ? float_to_bf16(values[i]) : float_to_fp16(values[i]);
      std::memcpy(bytes.data() + i * width, &bits, width);
    }
  }
  return bytes;
}

TestWeight random_weight(Random& random, std::int64_t out, std::int64_t in, DType dtype,
                         ops::Compute compute) {
  TestWeight weight{out, in, {}, ops::PackedWeight(out, in, dtype, compute)};
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(out * in));
  for (float& value : values) value = normal(random);
  const std::vector<std::byte> stored = encode(values, dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = load_element(stored.data(), dtype, static_cast<std::int64_t>(i));
  }
  weight.packed.set_output_rows(0, out, stored.data());
  weight.dense = std::move(values);
  return weight;
}

TestQuantized random_quantized(Random& random, std::int64_t out, std::int64_t in, DType dtype) {
  TestQuantized matrix{dtype, out, in, {}, {}, {}, {}};
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < out * in / kQuantGroup; ++i) {
    matrix.scales.push_back(float_to_fp16(normal(random) / 16));
    matrix.minimums.push_back(float_to_fp16(normal(random)));
  }
  for (std::int64_t i = 0; i < out * in; ++i) {
    const auto group = static_cast<std::size_t>(i / kQuantGroup);
    const float scale = fp16_to_float(matrix.scales[group]);
    if (dtype == DType::kInt8) {
      const int code = static_cast<int>(random() % 256) - 128;
      matrix.codes.push_back(static_cast<std::uint8_t>(code));
      matrix.dense.push_back(static_cast<float>(code) * scale);
    } else {
      const auto code = static_cast<std::uint8_t>(random() % 16);
      matrix.codes.push_back(code);
      matrix.dense.push_back(
          std::fma(static_cast<float>(code), scale, fp16_to_float(matrix.minimums[group])));
    }
  }
  return matrix;
}

TestQuantized::Arrays TestQuantized::outputs(Range rows) const {
  Arrays arrays;
  const std::int64_t step = dtype == DType::kInt8 ? 1 : 2;
  for (std::int64_t i = rows.begin * in; i < rows.end * in; i += step) {
    const auto at = static_cast<std::size_t>(i);
    arrays.codes.push_back(step == 1 ? codes[at]
                                     : static_cast<std::uint8_t>(codes[at] | codes[at + 1] << 4));
  }
  const std::int64_t groups = in / kQuantGroup;
  arrays.scales.assign(scales.begin() + rows.begin * groups, scales.begin() + rows.end * groups);
  arrays.minimums.assign(minimums.begin() + rows.begin * groups,
                         minimums.begin() + rows.end * groups);
  return arrays;
}

TestQuantized::Arrays TestQuantized::inputs(Range columns) const {
  Arrays arrays;
  const std::int64_t step = dtype == DType::kInt8 ? 1 : 2;
  for (std::int64_t k = columns.begin; k < columns.end; k += step) {
    for (std::int64_t o = 0; o < out; ++o) {
      const auto at = static_cast<std::size_t>(o * in + k);
      arrays.codes.push_back(step == 1 ? codes[at]
                                       : static_cast<std::uint8_t>(codes[at] | codes[at + 1] << 4));
    }
  }
  for (std::int64_t k = columns.begin; k < columns.end; k += kQuantGroup) {
    for (std::int64_t o = 0; o < out; ++o) {
      const auto group = static_cast<std::size_t>((o * in + k) / kQuantGroup);
      arrays.scales.push_back(scales[group]);
      arrays.minimums.push_back(minimums[group]);
    }
  }
  return arrays;
}

TestWeight quantized_weight(Random& random, std::int64_t out, std::int64_t in, DType dtype) {
  TestQuantized matrix = random_quantized(random, out, in, dtype);
  TestWeight weight{out, in, matrix.dense, ops::PackedWeight(out, in, dtype), std::move(matrix)};
  weight.packed.set_output_rows(0, out, weight.quantized.outputs({0, out}).rows());
  return weight;
}

double dot(const float* x, const float* weights, std::int64_t count) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    sum += static_cast<double>(x[k]) * static_cast<double>(weights[k]);
  }
  return sum;
}

::testing::AssertionResult same_bits(const at::Tensor& got, const at::Tensor& expected) {
  if (!got.sizes().equals(expected.sizes())) {
    return ::testing::AssertionFailure()
           << "shapes differ: " << got.numel() << " and " << expected.numel() << " elements";
  }
  const at::Tensor a = got.contiguous();
  const at::Tensor b = expected.contiguous();
  const auto* const left = a.const_data_ptr<float>();
  const auto* const right = b.const_data_ptr<float>();
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    if (std::bit_cast<std::uint32_t>(left[i]) != std::bit_cast<std::uint32_t>(right[i])) {
      return ::testing::AssertionFailure() << "element " << i << " of " << a.numel() << ": got "
                                           << left[i] << ", expected " << right[i];
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace caravan::testing
