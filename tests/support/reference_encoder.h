#pragma once
// The image encoder of Llama 3.2 Vision written down as plainly as possible, in double precision,
// after the description of Meta's reference: always four tiles, each padded to a multiple of eight
// tokens, all rows computed, a pad (padding row or absent tile) does not see pads.

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "support/tiny_model.h"

namespace caravan::test {

class ReferenceEncoder {
 public:
  using Row = std::vector<double>;

  ReferenceEncoder(const model::LlamaConfig& config, const RandomWeightSource& source)
      : vision_(*config.vision), source_(source) {
    for (model::TensorSpec& spec : model::tensor_specs(config)) specs_[spec.name] = spec;
  }

  /// Projected image tokens of the present tiles, [tiles * N][D].
  std::vector<Row> encode(const model::TileGrid& grid,
                          const std::vector<std::uint8_t>& pixels) const {
    const std::int64_t padded = vision_.padded_tile_tokens();
    const std::int64_t tokens = vision_.tile_tokens();
    std::vector<Row> x;
    std::vector<bool> pad;
    for (std::int64_t tile = 0; tile < 4; ++tile) {
      for (std::int64_t token = 0; token < padded; ++token) {
        pad.push_back(token >= tokens || tile >= grid.num_tiles());
        x.push_back(token < tokens ? embedded(grid, pixels, tile, token)
                                   : Row(static_cast<std::size_t>(vision_.width), 0.0));
      }
    }
    std::vector<std::vector<Row>> saved;
    for (std::int64_t layer = 0; layer < vision_.num_local_layers; ++layer) {
      for (const std::int64_t wanted : vision_.saved_layers) {
        if (wanted == layer) saved.push_back(x);
      }
      run_layer("vision.local." + std::to_string(layer) + ".", 1, 1, pad, x);
    }
    for (std::size_t row = 0; row < x.size(); ++row) {
      x[row] = layer_norm(x[row], "vision.norm_post");
      const auto tile = static_cast<std::int64_t>(row) / padded;
      if (tile < grid.num_tiles()) {
        add(x[row], std::tanh(scalar("vision.post_tile_gate")),
            stored_row("vision.post_tile", cell(grid, tile)));
      }
    }
    for (std::int64_t layer = 0; layer < vision_.num_global_layers; ++layer) {
      const std::string prefix = "vision.global." + std::to_string(layer) + ".";
      run_layer(prefix, std::tanh(scalar(prefix + "gate_attn")),
                std::tanh(scalar(prefix + "gate_ffn")), pad, x);
    }
    std::vector<Row> projected;
    for (std::int64_t tile = 0; tile < grid.num_tiles(); ++tile) {
      for (std::int64_t token = 0; token < tokens; ++token) {
        const auto row = static_cast<std::size_t>(tile * padded + token);
        Row features = x[row];
        for (std::size_t c = 0; c < x[row].size(); ++c) {
          for (const auto& state : saved) features.push_back(state[row][c]);
        }
        projected.push_back(product("vision.projector", features));
      }
    }
    return projected;
  }

 private:
  double scalar(const std::string& name) const {
    return static_cast<double>(source_.value(specs_.at(name), 0, 0));
  }
  double at(const std::string& name, std::size_t index) const {
    return static_cast<double>(source_.value(specs_.at(name), static_cast<std::int64_t>(index), 0));
  }
  Row stored_row(const std::string& name, std::int64_t row) const {
    const model::TensorSpec& spec = specs_.at(name);
    Row result;
    for (std::int64_t c = 0; c < spec.columns; ++c) {
      result.push_back(static_cast<double>(source_.value(spec, row, c)));
    }
    return result;
  }
  Row product(const std::string& name, const Row& x) const {
    const model::TensorSpec& spec = specs_.at(name);
    Row y(static_cast<std::size_t>(spec.transposed ? spec.columns : spec.rows), 0.0);
    const bool biased = specs_.count(name + ".bias") != 0;
    for (std::size_t out = 0; out < y.size(); ++out) {
      if (biased) y[out] = at(name + ".bias", out);
      for (std::size_t k = 0; k < x.size(); ++k) {
        const auto row = static_cast<std::int64_t>(spec.transposed ? k : out);
        const auto column = static_cast<std::int64_t>(spec.transposed ? out : k);
        y[out] += x[k] * static_cast<double>(source_.value(spec, row, column));
      }
    }
    return y;
  }
  Row layer_norm(const Row& x, const std::string& name) const {
    double mean = 0;
    double variance = 0;
    for (const double value : x) mean += value / static_cast<double>(x.size());
    for (const double value : x) {
      variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
    }
    Row y;
    for (std::size_t c = 0; c < x.size(); ++c) {
      y.push_back((x[c] - mean) / std::sqrt(variance + vision_.norm_epsilon) * at(name, c) +
                  at(name + ".bias", c));
    }
    return y;
  }
  static void add(Row& x, double scale, const Row& y) {
    for (std::size_t c = 0; c < x.size(); ++c) x[c] += scale * y[c];
  }
  static std::int64_t cell(const model::TileGrid& grid, std::int64_t tile) {
    return model::tile_cell_index({tile / grid.across, tile % grid.across});
  }

  Row embedded(const model::TileGrid& grid, const std::vector<std::uint8_t>& pixels,
               std::int64_t tile, std::int64_t token) const {
    const double mean[3] = {0.48145466, 0.4578275, 0.40821073};
    const double deviation[3] = {0.26862954, 0.26130258, 0.27577711};
    const bool present = tile < grid.num_tiles();
    const std::int64_t side = vision_.patch_size;
    Row patch(static_cast<std::size_t>(vision_.patch_elements()), 0.0);
    Row x(static_cast<std::size_t>(vision_.width), 0.0);
    if (token == 0) {
      for (std::size_t c = 0; c < x.size(); ++c) x[c] = at("vision.class", c);
    } else if (present) {
      const std::int64_t top = (token - 1) / vision_.patches_across() * side;
      const std::int64_t left = (token - 1) % vision_.patches_across() * side;
      for (std::int64_t i = 0; i < vision_.patch_elements(); ++i) {
        const std::int64_t channel = i / (side * side);
        const std::int64_t y = top + i / side % side;
        const std::int64_t place =
            ((tile * 3 + channel) * vision_.tile_size + y) * vision_.tile_size + left + i % side;
        patch[static_cast<std::size_t>(i)] =
            (pixels[static_cast<std::size_t>(place)] / 255.0 - mean[channel]) / deviation[channel];
      }
      x = product("vision.patch", patch);
      add(x, std::tanh(scalar("vision.pre_tile_gate")),
          stored_row("vision.pre_tile", cell(grid, tile)));
    }
    const double gate = std::tanh(scalar("vision.position_gate"));
    add(x, 1 - gate, stored_row("vision.position", token));
    if (present) {
      add(x, gate,
          stored_row("vision.position_tile", cell(grid, tile) * vision_.tile_tokens() + token));
    }
    return layer_norm(x, "vision.norm_pre");
  }

  void run_layer(const std::string& prefix, double attention_gate, double ffn_gate,
                 const std::vector<bool>& pad, std::vector<Row>& x) const {
    std::vector<Row> queries;
    std::vector<Row> keys;
    std::vector<Row> values;
    for (const Row& row : x) {
      const Row normed = layer_norm(row, prefix + "norm1");
      queries.push_back(product(prefix + "wq", normed));
      keys.push_back(product(prefix + "wk", normed));
      values.push_back(product(prefix + "wv", normed));
    }
    const auto d = static_cast<std::size_t>(vision_.head_dim());
    for (std::size_t n = 0; n < x.size(); ++n) {
      Row attended(x[n].size(), 0.0);
      for (std::size_t first = 0; first < attended.size(); first += d) {
        double total = 0;
        for (std::size_t t = 0; t < x.size(); ++t) {
          if (pad[n] && pad[t]) continue;
          double score = 0;
          for (std::size_t i = first; i < first + d; ++i) score += queries[n][i] * keys[t][i];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(d)));
          total += weight;
          for (std::size_t i = first; i < first + d; ++i) attended[i] += weight * values[t][i];
        }
        for (std::size_t i = first; i < first + d; ++i) attended[i] /= total;
      }
      add(x[n], attention_gate, product(prefix + "wo", attended));
    }
    for (Row& row : x) {
      Row hidden = product(prefix + "w1", layer_norm(row, prefix + "norm2"));
      for (double& value : hidden) value *= 0.5 * std::erfc(-value / std::sqrt(2.0));
      add(row, ffn_gate, product(prefix + "w2", hidden));
    }
  }

  model::VisionConfig vision_;
  const RandomWeightSource& source_;
  std::map<std::string, model::TensorSpec> specs_;
};

}  // namespace caravan::test
