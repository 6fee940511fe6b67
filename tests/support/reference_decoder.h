#pragma once
// The Llama decoder written down as plainly as possible, in double precision, for one sequence on
// one rank: what the real one is compared with. Follows the formulas of the Llama paper and of
// Meta's reference model (interleaved rotary pairs).

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "caravan/model/config.h"
#include "caravan/model/shard_plan.h"
#include "support/tiny_model.h"

namespace caravan::test {

class ReferenceDecoder {
 public:
  ReferenceDecoder(const model::LlamaConfig& config, const RandomWeightSource& source)
      : config_(config), source_(source) {
    for (model::TensorSpec& spec : model::tensor_specs(config)) specs_[spec.name] = spec;
  }

  /// Logits [V] after each token.
  std::vector<std::vector<double>> logits(const std::vector<std::int32_t>& tokens) const {
    std::vector<Row> x;
    for (const std::int32_t token : tokens) x.push_back(stored_row("text.embed", token));
    for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) run_layer(layer, x);
    std::vector<std::vector<double>> result;
    const std::string head = config_.tied_embeddings ? "text.embed" : "text.head";
    for (const Row& row : x) {
      const Row normed = rms_norm(row, "text.final_norm");
      result.push_back(product(head, normed));
    }
    return result;
  }

 private:
  using Row = std::vector<double>;

  Row stored_row(const std::string& name, std::int64_t row) const {
    const model::TensorSpec& spec = specs_.at(name);
    Row result;
    for (std::int64_t c = 0; c < spec.columns; ++c) {
      result.push_back(static_cast<double>(source_.value(spec, row, c)));
    }
    return result;
  }
  /// y = W x with W in torch's sense, whatever way it is stored.
  Row product(const std::string& name, const Row& x) const {
    const model::TensorSpec& spec = specs_.at(name);
    const std::int64_t outputs = spec.transposed ? spec.columns : spec.rows;
    Row y(static_cast<std::size_t>(outputs), 0.0);
    for (std::int64_t out = 0; out < outputs; ++out) {
      for (std::size_t k = 0; k < x.size(); ++k) {
        const auto in = static_cast<std::int64_t>(k);
        y[static_cast<std::size_t>(out)] +=
            x[k] * static_cast<double>(spec.transposed ? source_.value(spec, in, out)
                                                       : source_.value(spec, out, in));
      }
    }
    const auto bias = specs_.find(name + ".bias");
    if (bias != specs_.end()) {
      for (std::int64_t out = 0; out < outputs; ++out) {
        y[static_cast<std::size_t>(out)] +=
            static_cast<double>(source_.value(bias->second, out, 0));
      }
    }
    return y;
  }
  Row rms_norm(const Row& x, const std::string& name) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + config_.norm_epsilon);
    Row y;
    for (std::size_t i = 0; i < x.size(); ++i) {
      y.push_back(
          x[i] * scale *
          static_cast<double>(source_.value(specs_.at(name), static_cast<std::int64_t>(i), 0)));
    }
    return y;
  }
  void rotate(Row& heads, std::size_t position) const {
    const auto frequencies = model::rope_inverse_frequencies(config_);
    const auto d = static_cast<std::size_t>(config_.head_dim);
    for (std::size_t first = 0; first < heads.size(); first += d) {
      for (std::size_t pair = 0; pair < d / 2; ++pair) {
        const double angle = static_cast<double>(static_cast<float>(position) * frequencies[pair]);
        const double a = heads[first + 2 * pair];
        const double b = heads[first + 2 * pair + 1];
        heads[first + 2 * pair] = a * std::cos(angle) - b * std::sin(angle);
        heads[first + 2 * pair + 1] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }
  Row attend(const std::vector<Row>& queries, const std::vector<Row>& keys,
             const std::vector<Row>& values, std::size_t position) const {
    const auto d = static_cast<std::size_t>(config_.head_dim);
    const auto group = static_cast<std::size_t>(config_.num_heads / config_.num_kv_heads);
    Row out(queries[position].size(), 0.0);
    for (std::size_t head = 0; head < out.size() / d; ++head) {
      const std::size_t kv = head / group;
      Row weights;
      double total = 0;
      for (std::size_t t = 0; t <= position; ++t) {
        double score = 0;
        for (std::size_t i = 0; i < d; ++i) {
          score += queries[position][head * d + i] * keys[t][kv * d + i];
        }
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(d))));
        total += weights.back();
      }
      for (std::size_t t = 0; t <= position; ++t) {
        for (std::size_t i = 0; i < d; ++i) {
          out[head * d + i] += weights[t] / total * values[t][kv * d + i];
        }
      }
    }
    return out;
  }
  void run_layer(std::int64_t layer, std::vector<Row>& x) const {
    const std::string prefix = "text.layer." + std::to_string(layer) + ".";
    std::vector<Row> queries;
    std::vector<Row> keys;
    std::vector<Row> values;
    for (std::size_t position = 0; position < x.size(); ++position) {
      const Row normed = rms_norm(x[position], prefix + "attn_norm");
      queries.push_back(product(prefix + "wq", normed));
      keys.push_back(product(prefix + "wk", normed));
      values.push_back(product(prefix + "wv", normed));
      rotate(queries.back(), position);
      rotate(keys.back(), position);
    }
    for (std::size_t position = 0; position < x.size(); ++position) {
      add(x[position], product(prefix + "wo", attend(queries, keys, values, position)));
      const Row normed = rms_norm(x[position], prefix + "ffn_norm");
      Row gate = product(prefix + "w1", normed);
      const Row up = product(prefix + "w3", normed);
      for (std::size_t i = 0; i < gate.size(); ++i) {
        gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
      }
      add(x[position], product(prefix + "w2", gate));
    }
  }
  static void add(Row& x, const Row& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }

  model::LlamaConfig config_;
  const RandomWeightSource& source_;
  std::map<std::string, model::TensorSpec> specs_;
};

}  // namespace caravan::test
