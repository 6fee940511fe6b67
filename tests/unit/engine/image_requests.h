#pragma once
// Requests with and without images over a tiny random model with vision.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine_rig.h"

namespace caravan::test {

constexpr std::int32_t kImageToken = 331;

/// A text model's setup turned into one that reads images; blocks for a few large images.
inline EngineSetup vision_setup() {
  EngineSetup setup;
  setup.limits.image_blocks = 40;
  setup.change_model = [](model::LlamaConfig& config) { config = uneven_vision_config(); };
  return setup;
}

/// Image `number` of a fixed series; 4 * i + t has t + 1 tiles.
inline engine::PromptImage numbered_image(std::int64_t number) {
  const model::VisionConfig vision = *uneven_vision_config().vision;
  const std::array<model::TileGrid, 4> grids = {{{1, 1}, {2, 1}, {1, 3}, {2, 2}}};
  engine::PromptImage image;
  image.content_hash = "image " + std::to_string(number);
  image.grid = grids[static_cast<std::size_t>(number % 4)];
  SmallRandom random(static_cast<std::uint64_t>(500 + number));
  auto pixels = std::make_shared<std::vector<std::uint8_t>>(
      static_cast<std::size_t>(image.grid.num_tiles() * 3 * vision.tile_size * vision.tile_size));
  for (std::uint8_t& value : *pixels) value = static_cast<std::uint8_t>(random.below(256));
  image.pixels = std::move(pixels);
  return image;
}

/// Puts images into a prompt: pairs of position and number, by position.
inline void show_images(engine::Request& request,
                        const std::vector<std::pair<std::size_t, std::int64_t>>& places) {
  for (const auto& [position, number] : places) {
    request.prompt[position] = kImageToken;
    request.images.push_back(numbered_image(number));
  }
}

/// Images first, last, alone, adjacent, apart, repeated and shared between requests, and text.
inline std::vector<engine::Request> image_requests() {
  std::vector<engine::Request> requests;
  const auto add = [&](std::int64_t prompt_size,
                       const std::vector<std::pair<std::size_t, std::int64_t>>& places,
                       auto change) {
    engine::SamplingParams sampling;
    sampling.temperature = 0;
    sampling.max_tokens = 9;
    sampling.logprobs = true;
    change(sampling);
    requests.push_back(make_request(100 + std::ssize(requests), prompt_size, sampling));
    show_images(requests.back(), places);
  };
  using Params = engine::SamplingParams;
  add(24, {{0, 1}}, [](Params& p) { p.top_logprobs = 2; });
  add(12, {}, [](Params&) {});
  add(30, {{7, 3}, {8, 0}}, [](Params& p) { p.logprobs = false; });
  add(40, {{3, 2}, {20, 1}}, [](Params& p) { p.temperature = 1, p.seed = 5, p.num_choices = 3; });
  add(50, {}, [](Params& p) { p.temperature = 0.9, p.num_choices = 2, p.max_tokens = 20; });
  add(45, {{5, 0}, {6, 3}, {30, 7}},
      [](Params& p) { p.prompt_logprobs = true, p.top_prompt_logprobs = 2; });
  add(16, {{15, 1}}, [](Params& p) { p.max_tokens = 25; });
  add(20, {{2, 3}, {3, 3}, {4, 1}},
      [](Params& p) { p.repetition_penalty = 1.3, p.frequency_penalty = 0.2, p.max_tokens = 20; });
  add(1, {{0, 6}}, [](Params& p) { p.max_tokens = 30; });
  add(33, {{9, 4}, {32, 5}}, [](Params& p) { p.prompt_logprobs = true, p.max_tokens = 0; });
  add(5, {}, [](Params& p) { p.max_tokens = 40; });
  add(60, {{1, 8}, {11, 9}, {21, 10}, {31, 11}, {41, 8}}, [](Params& p) { p.max_tokens = 3; });
  add(18, {{0, 1}, {2, 0}}, [](Params& p) { p.temperature = 1.2, p.top_k = 30, p.seed = 8; });
  return requests;
}

/// Prompts of 60 tokens that are alike but for their images, and for their last token or not at
/// all.
inline std::vector<engine::Request> alike_image_requests() {
  std::vector<engine::Request> requests;
  for (std::int64_t id = 0; id < 10; ++id) {
    engine::SamplingParams sampling;
    sampling.temperature = id % 2 == 0 ? 0 : 1;
    sampling.max_tokens = 20;
    sampling.logprobs = true;
    sampling.prompt_logprobs = id == 4;
    sampling.num_choices = 1 + id % 3;
    requests.push_back(make_request(1, 60, sampling));
    requests.back().id = id;
    show_images(requests.back(), {{18, id % 5 == 1 ? 2 : 1}, {40, id % 5 == 2 ? 7 : 3}});
    if (id % 5 == 3) requests.back().prompt.back() = 65;
  }
  return requests;
}

}  // namespace caravan::test
