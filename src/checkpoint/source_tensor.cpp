#include "caravan/checkpoint/source_tensor.h"

#include <algorithm>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 58;

}  // namespace

std::int64_t checked_elements(const std::vector<std::int64_t>& shape, const std::string& where) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) {
    CARAVAN_CHECK(extent > 0 && !__builtin_mul_overflow(elements, extent, &elements) &&
                      elements <= kMaxElements,
                  InputError, "{} has the impossible shape [{}]", where, fmt::join(shape, ", "));
  }
  return elements;
}

std::int64_t checked_bytes(ElementType type, std::int64_t elements, std::int64_t columns,
                           const std::string& where) {
  const BlockLayout layout = block_layout(type);
  CARAVAN_CHECK(columns % layout.elements == 0, InputError,
                "{} has rows of {} elements, expected whole blocks of {} for {}", where, columns,
                layout.elements, element_type_name(type));
  return elements / layout.elements * layout.bytes;  // at most 2^58 * 8
}

void read_rectangle(io::InputFile& file, const SourceTensor& tensor, Range rows, Range columns,
                    float* destination) {
  const std::int64_t row_elements = tensor.shape.back();
  const std::int64_t num_rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
  CARAVAN_ASSERT(rows.begin >= 0 && rows.end <= num_rows && columns.begin >= 0 &&
                     columns.end <= row_elements && !columns.empty(),
                 "rows [{}, {}) and columns [{}, {}) of {}", rows.begin, rows.end, columns.begin,
                 columns.end, tensor.name);
  const BlockLayout layout = block_layout(tensor.type);
  const std::int64_t row_bytes = row_elements / layout.elements * layout.bytes;
  if (columns.size() == row_elements) {
    std::vector<std::byte> raw(checked_cast<std::size_t>(rows.size() * row_bytes));
    file.read(tensor.offset + rows.begin * row_bytes, raw);
    decode_blocks(tensor.type, raw,
                  {destination, checked_cast<std::size_t>(rows.size() * row_elements)});
    return;
  }
  // Part of each row: the blocks that hold it, of which the wanted elements are kept.
  const Range blocks = {columns.begin / layout.elements, ceil_div(columns.end, layout.elements)};
  const std::int64_t skipped = columns.begin - blocks.begin * layout.elements;
  std::vector<std::byte> raw(checked_cast<std::size_t>(blocks.size() * layout.bytes));
  std::vector<float> values(checked_cast<std::size_t>(blocks.size() * layout.elements));
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    file.read(tensor.offset + row * row_bytes + blocks.begin * layout.bytes, raw);
    decode_blocks(tensor.type, raw, values);
    destination = std::copy_n(values.data() + skipped, columns.size(), destination);
  }
}

}  // namespace caravan::checkpoint
