#include "vision_tensors.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "caravan/core/checked_cast.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"

namespace caravan::checkpoint {
namespace {

using model::TileCell;
using model::TileGrid;

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;  // bounded when the file was read
  return elements;
}

/// `shape` from element `first` of a tensor without gaps.
SourceTensor view(const SourceTensor& tensor, std::int64_t first, std::vector<std::int64_t> shape) {
  CARAVAN_ASSERT(tensor.parts.empty() && tensor.strides.empty(), "a view of {}", tensor.name);
  const std::int64_t element_bytes = block_layout(tensor.type).bytes;
  SourceTensor result = tensor;
  result.offset += first * element_bytes;
  result.bytes = product(shape) * element_bytes;
  result.shape = std::move(shape);
  return result;
}

/// Rows [begin, end) of a matrix, whose rows or columns may have gaps.
SourceTensor row_view(const SourceTensor& tensor, std::int64_t begin, std::int64_t end) {
  CARAVAN_ASSERT(tensor.parts.empty(), "a view of {}", tensor.name);
  const std::int64_t element_bytes = block_layout(tensor.type).bytes;
  const std::int64_t stride = tensor.strides.empty() ? tensor.shape[1] : tensor.strides[0];
  SourceTensor result = tensor;
  result.offset += begin * stride * element_bytes;
  result.shape[0] = end - begin;
  result.bytes = (end - begin) * tensor.shape[1] * element_bytes;
  return result;
}

/// Which of a grid's tiles lies in a cell, in raster order; empty if none does.
std::optional<std::int64_t> tile_in(const TileGrid& grid, const TileCell& cell) {
  if (cell.row >= grid.down || cell.column >= grid.across) return std::nullopt;
  return cell.row * grid.across + cell.column;
}

class Views {
 public:
  Views(Source& source, std::vector<SourceTensor> found, const VisionNames& names,
        model::LlamaConfig& config, const std::string& where)
      : source_(source), found_(std::move(found)), names_(names), config_(config), where_(where) {}

  std::vector<SourceTensor> make() {
    split_embedding();
    check_position_table();
    flatten_patches();
    // Tokens of a tile that have a row of their own.
    reduce_table("vision.position_tile", vision().tile_tokens());
    reduce_table("vision.pre_tile", 1);
    reduce_table("vision.post_tile", 1);
    for (const model::TensorSpec& spec : model::tensor_specs(config_)) {
      if (spec.name.ends_with("gate") || spec.name.ends_with("gate_attn") ||
          spec.name.ends_with("gate_ffn"))
        reduce_gate(spec.name);
    }
    return std::move(found_);
  }

 private:
  const model::VisionConfig& vision() const { return *config_.vision; }

  SourceTensor* find(std::string_view canonical) {
    const std::string name = names_.of(canonical);
    const auto found = std::find_if(found_.begin(), found_.end(), [&](const SourceTensor& tensor) {
      return tensor.name == name;
    });
    return found == found_.end() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(const SourceTensor& tensor, const std::string& what) const {
    throw InputError(fmt::format("{}: tensor \"{}\" {}", where_, tensor.name, what));
  }

  // The tables and patches are seen in other shapes, which needs them without gaps.
  void require_dense(const SourceTensor& tensor) const {
    if (!tensor.strides.empty())
      refuse(tensor, fmt::format("has the strides [{}], expected a tensor without gaps",
                                 fmt::join(tensor.strides, ", ")));
  }

  void split_embedding() {
    const std::string extra_name = names_.of("text.embed_extra");
    SourceTensor* embedding = find("text.embed");
    if (names_.style() == NameStyle::kHuggingFace) {
      if (embedding == nullptr || embedding->shape.size() != 2) return;
      const std::int64_t rows = embedding->shape[0];
      if (rows <= config_.vocab_size)
        refuse(*embedding, fmt::format("has {} rows, expected the vocabulary of {} and those of "
                                       "the image token behind it",
                                       rows, config_.vocab_size));
      SourceTensor extra = row_view(*embedding, config_.vocab_size, rows);
      extra.name = extra_name;
      *embedding = row_view(*embedding, 0, config_.vocab_size);
      found_.push_back(std::move(extra));  // ends the life of `embedding`
    }
    if (const SourceTensor* extra = find("text.embed_extra"); extra != nullptr)
      config_.vision->extra_embeddings = extra->shape[0];
  }

  // Tiles of another size show here first, and are worth a better word than a wrong shape.
  void check_position_table() {
    const SourceTensor* table = find("vision.position");
    if (table == nullptr || table->shape.size() != 2) return;
    const std::int64_t tokens = table->shape[0];
    if (tokens == vision().tile_tokens()) return;
    std::int64_t across = 1;
    while (across * across < tokens - 1) ++across;
    refuse(*table,
           fmt::format("has positions for {} tokens of a tile ({} pixels across), but the "
                       "description says tiles of {} pixels, which have {}; correct image_size "
                       "(vision_chunk_size, tile_size)",
                       tokens, across * vision().patch_size, vision().tile_size,
                       vision().tile_tokens()));
  }

  void flatten_patches() {
    SourceTensor* patch = find("vision.patch");
    const std::int64_t side = vision().patch_size;
    if (patch == nullptr || patch->shape.size() != 4) return;
    if (patch->shape != std::vector{vision().width, std::int64_t{3}, side, side}) return;
    require_dense(*patch);
    *patch = view(*patch, 0, {vision().width, vision().patch_elements()});
  }

  void reduce_table(std::string_view canonical, std::int64_t tokens) {
    SourceTensor* table = find(canonical);
    if (table == nullptr) return;
    require_dense(*table);
    const std::int64_t width = vision().width;
    constexpr std::int64_t kSide = model::kMaxTiles;
    const auto num_rows = static_cast<std::int64_t>(model::kTileGrids.size()) + 1;
    const std::vector<std::int64_t> by_cell = {kSide, kSide, tokens, width};
    const std::vector<std::int64_t> by_grid = {num_rows, kSide * tokens * width};
    const bool hugging_face = names_.style() == NameStyle::kHuggingFace;
    const auto& expected = hugging_face ? by_grid : by_cell;
    if (table->shape != expected) {
      refuse(*table, fmt::format("has shape [{}], expected [{}] for tiles of {} pixels",
                                 fmt::join(table->shape, ", "), fmt::join(expected, ", "),
                                 vision().tile_size));
    }
    std::vector<SourceTensor> cells;
    for (const TileCell& cell : model::kTileCells) {
      cells.push_back(hugging_face ? agreed_tile(*table, cell, tokens)
                                   : view(*table, (cell.row * kSide + cell.column) * tokens * width,
                                          {tokens, width}));
    }
    if (hugging_face) check_absent_tiles(*table, tokens);
    *table = joined(std::move(cells), 0, where_);
  }

  // Row `id` of Hugging Face's tables has the tiles of grid `id` in raster order; row 0 is unused.
  SourceTensor slot(const SourceTensor& table, std::size_t grid, std::int64_t tile,
                    std::int64_t tokens) const {
    const auto id = static_cast<std::int64_t>(grid) + 1;
    return view(table, (id * model::kMaxTiles + tile) * tokens * vision().width,
                {tokens, vision().width});
  }

  // A cell's values, which every grid that has the cell must repeat.
  SourceTensor agreed_tile(const SourceTensor& table, const TileCell& cell, std::int64_t tokens) {
    std::optional<SourceTensor> first;
    for (std::size_t i = 0; i < model::kTileGrids.size(); ++i) {
      const TileGrid& grid = model::kTileGrids[i];
      const auto tile = tile_in(grid, cell);
      if (!tile) continue;
      SourceTensor values = slot(table, i, *tile, tokens);
      if (first && !same_values(source_.files, *first, values)) {
        refuse(table,
               fmt::format("has other values for the tile in row {}, column {} of {} x {} tiles "
                           "than for smaller arrangements: the encoder was trained further in "
                           "Hugging Face's form, which other formats cannot hold",
                           cell.row, cell.column, grid.down, grid.across));
      }
      if (!first) first = std::move(values);
    }
    return *std::move(first);
  }

  // Tiles that an arrangement does not have get nothing added.
  void check_absent_tiles(const SourceTensor& table, std::int64_t tokens) {
    std::vector<float> values(checked_cast<std::size_t>(tokens * vision().width));
    for (std::size_t i = 0; i < model::kTileGrids.size(); ++i) {
      const TileGrid& grid = model::kTileGrids[i];
      for (std::int64_t tile = grid.num_tiles(); tile < model::kMaxTiles; ++tile) {
        read_rectangle(source_.files, slot(table, i, tile, tokens), {0, tokens},
                       {0, vision().width}, values.data());
        const bool zero =
            std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
        if (!zero) {
          refuse(table, fmt::format("has values for tile {} of an arrangement of {} x {}, expected "
                                    "zeros: the encoder was trained further in Hugging Face's "
                                    "form, which other formats cannot hold",
                                    tile, grid.down, grid.across));
        }
      }
    }
  }

  // Some exports have a gate several times; Hugging Face's converter takes the first value.
  void reduce_gate(std::string_view canonical) {
    SourceTensor* gate = find(canonical);
    if (gate == nullptr || gate->shape.size() != 1 || gate->shape[0] == 1) return;
    require_dense(*gate);
    std::vector<float> values(checked_cast<std::size_t>(gate->shape[0]));
    read_rectangle(source_.files, *gate, {0, 1}, {0, gate->shape[0]}, values.data());
    if (std::any_of(values.begin(), values.end(),
                    [&](float value) { return value != values.front(); }))
      log::warning("{} has {} different values, expected one gate: the first is taken", gate->name,
                   values.size());
    *gate = view(*gate, 0, {1});
  }

  Source& source_;
  std::vector<SourceTensor> found_;
  const VisionNames& names_;
  model::LlamaConfig& config_;
  const std::string& where_;
};

}  // namespace

std::vector<SourceTensor> vision_views(Source& source, std::vector<SourceTensor> found,
                                       const VisionNames& names, model::LlamaConfig& config,
                                       const std::string& where) {
  return Views(source, std::move(found), names, config, where).make();
}

}  // namespace caravan::checkpoint
