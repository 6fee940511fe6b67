// Folders of Hugging Face, Meta and torchtune: a description (config.json or params.json), weights,
// tokenizer and chat template files.

#include <algorithm>
#include <filesystem>
#include <utility>

#include "caravan/checkpoint/hf_config.h"
#include "caravan/checkpoint/meta_config.h"
#include "caravan/checkpoint/tune_config.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "image_token.h"
#include "meta_shards.h"
#include "preprocessor_config.h"
#include "source_parts.h"
#include "source_text.h"
#include "text_files.h"
#include "vision_tensors.h"
#include "weight_tensors.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHfConfig = "config.json";
constexpr const char* kMetaConfig = "params.json";
constexpr const char* kTuneConfig = "builder_args.json";

std::string folder_name(const fs::path& folder) {
  const fs::path absolute = fs::absolute(folder).lexically_normal();
  return absolute.has_filename() ? absolute.filename().string()
                                 : absolute.parent_path().filename().string();
}

fs::path parent(const fs::path& folder) {
  const fs::path absolute = fs::absolute(folder).lexically_normal();
  return (absolute.has_filename() ? absolute : absolute.parent_path()).parent_path();
}

std::string model_name(const fs::path& folder) {
  return is_part_of_model(folder_name(folder)) ? folder_name(parent(folder)) : folder_name(folder);
}

// Where files of the model may lie. Meta puts the tokenizer of several models beside their folders;
// torchtune leaves configuration and tokenizer beside its epochs.
std::vector<fs::path> places_of(const WeightFiles& weights, NameStyle style) {
  std::vector<fs::path> places = {weights.folder};
  if (weights.layout == WeightFiles::Layout::kModelParallel || style == NameStyle::kTorchtune ||
      weights.from_training || is_part_of_model(folder_name(weights.folder)))
    places.push_back(parent(weights.folder));
  return places;
}

NameStyle recognise_names(const std::vector<std::vector<SourceTensor>>& files) {
  NameStyle style = NameStyle::kHuggingFace;
  for (const auto& tensors : files) {
    for (const SourceTensor& tensor : tensors) {
      if (tensor.name.ends_with(".sa_norm.scale")) return NameStyle::kTorchtune;
      if (tensor.name == "tok_embeddings.weight" ||
          tensor.name == "text_model.tok_embeddings.weight")
        style = NameStyle::kMeta;
    }
  }
  return style;
}

bool has_head(const std::vector<SourceTensor>& tensors, NameStyle style) {
  const std::string name = source_tensor_name("text.head", style);
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const SourceTensor& tensor) { return tensor.name == name; });
}

std::vector<SourceTensor> flattened(std::vector<std::vector<SourceTensor>> files) {
  std::vector<SourceTensor> tensors;
  for (auto& file : files) {
    std::move(file.begin(), file.end(), std::back_inserter(tensors));
  }
  return tensors;
}

std::vector<std::string> names_of(const std::vector<SourceTensor>& tensors) {
  std::vector<std::string> names;
  for (const SourceTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

const SourceTensor* find_tensor(const std::vector<SourceTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const auto& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

void tie_without_head(ModelDescription& description, const std::vector<SourceTensor>& tensors,
                      NameStyle style, const std::string& where) {
  if (description.config.tied_embeddings || has_head(tensors, style)) return;
  log::warning("{} has no {}: the embedding serves as head", where,
               source_tensor_name("text.head", style));
  description.config.tied_embeddings = true;
}

class FolderSource {
 public:
  FolderSource(const std::string& path, const SourceOptions& options)
      : path_(path), options_(options), weights_(find_weight_files(path)) {}

  Source open() {
    check_description();
    std::vector<std::vector<SourceTensor>> files = read_weight_files(source_, weights_);
    style_ = recognise_names(files);
    places_ = places_of(weights_, style_);
    const fs::path config = find_config();
    source_.head_order =
        style_ == NameStyle::kHuggingFace ? HeadOrder::kHalfSplit : HeadOrder::kInterleaved;
    description().name = presentable_name(options_.name.value_or(model_name(weights_.folder)));
    description().source =
        fmt::format("{} folder {}, {} weight file(s)", name_style_name(style_),
                    presentable_name(folder_name(weights_.folder)), source_.files.size());
    if (config.filename() == kMetaConfig) {
      open_meta(config, std::move(files));
    } else if (config.filename() == kTuneConfig) {
      open_torchtune(config, std::move(files));
    } else {
      open_hugging_face(config, std::move(files));
    }
    settle_text(description(), options_, path_);
    return std::move(source_);
  }

 private:
  ModelDescription& description() { return source_.description; }

  // What describes the model says more about a foreign one than its tensors do, so it comes first.
  void check_description() const {
    const fs::path& folder = weights_.folder;
    CARAVAN_CHECK(find_file({folder}, "hf_quant_config.json").empty(), InputError,
                  "{} holds a model quantized by NVIDIA's ModelOpt (hf_quant_config.json); convert "
                  "the unquantized model or a GGUF of it",
                  folder.string());
    const bool is_meta = weights_.layout == WeightFiles::Layout::kModelParallel;
    const fs::path file =
        find_file(places_of(weights_, NameStyle::kHuggingFace), is_meta ? kMetaConfig : kHfConfig);
    if (file.empty()) return;
    const std::string text = read_small_file(file, kMaxConfigBytes);
    if (is_meta) {
      parse_meta_params(text, file.string());
    } else {
      parse_hf_config(text, file.string());
    }
  }

  // Meta's weights are described by Meta's file where both are there.
  fs::path find_config() const {
    const bool meta_first = weights_.layout == WeightFiles::Layout::kModelParallel;
    for (const fs::path& place : places_) {
      for (const char* name : {meta_first ? kMetaConfig : kHfConfig,
                               meta_first ? kHfConfig : kMetaConfig, kTuneConfig}) {
        if (fs::path found = find_file({place}, name); !found.empty()) return found;
      }
    }
    throw InputError(
        fmt::format("{} has no config.json (Hugging Face) or params.json (Meta); copy that of the "
                    "base model beside the weights",
                    weights_.folder.string()));
  }

  void open_hugging_face(const fs::path& config, std::vector<std::vector<SourceTensor>> files) {
    const HfConfig parsed =
        parse_hf_config(read_small_file(config, kMaxConfigBytes), config.string());
    description().config = parsed.config;
    take_tensors(weights_.layout == WeightFiles::Layout::kModelParallel
                     ? join_shares(source_, std::move(files), description().config, path_)
                     : flattened(std::move(files)),
                 config);
    read_side_files();
    set_stop_ids({description().generation.stop_ids, parsed.stop_ids});
  }

  void open_torchtune(const fs::path& config, std::vector<std::vector<SourceTensor>> files) {
    description().config =
        parse_builder_args(read_small_file(config, kMaxConfigBytes), config.string());
    take_tensors(flattened(std::move(files)), config);
    read_side_files();
    set_stop_ids(
        {description().generation.stop_ids, end_of_text_ids(description().tokenizer.added_tokens)});
  }

  // Tokenizer, chat template, sampling defaults and preparation of images of a Hugging Face folder.
  void read_side_files() {
    description().chat_template = read_chat_template(places_);
    read_tokenizer_files();
    if (const fs::path generation = find_file(places_, "generation_config.json");
        !generation.empty()) {
      description().generation = parse_generation_config(
          read_small_file(generation, kMaxConfigBytes), generation.string());
    }
    if (description().config.vision) check_preprocessor(places_, *description().config.vision);
  }

  void read_tokenizer_files() {
    const model::LlamaConfig& config = description().config;
    if (options_.tokenizer) {
      take_named_tokenizer(description(), *options_.tokenizer);
    } else {
      description().tokenizer = read_tokenizer(places_, config.vocab_size);
    }
    // The image token has a row of its own behind the vocabulary.
    fit_tokenizer(description().tokenizer, config.vocab_size + (config.vision ? 1 : 0), path_);
    if (config.vision) add_image_token(description().tokenizer, config.vocab_size, path_);
  }

  void open_meta(const fs::path& config, std::vector<std::vector<SourceTensor>> files) {
    MetaParams params =
        parse_meta_params(read_small_file(config, kMaxConfigBytes), config.string());
    std::vector<SourceTensor> tensors =
        join_shares(source_, std::move(files), params.config, path_);
    take_sizes(params, tensors);
    if (!params.config.vision) tie_equal_head(params, tensors);
    take_tensors(std::move(tensors), config);
    read_tokenizer_files();
    complete_meta_config(params, description().tokenizer.kind);
    description().config.rope_theta = params.config.rope_theta;
    description().config.max_positions = params.config.max_positions;
    set_stop_ids({end_of_text_ids(description().tokenizer.added_tokens)});
  }

  // Matches the tensors with the description.
  void take_tensors(std::vector<SourceTensor> tensors, const fs::path& config_file) {
    model::LlamaConfig& config = description().config;
    const std::vector<std::string> names = names_of(tensors);
    const bool with_encoder = has_encoder(names);
    if (!config.vision) {
      CARAVAN_CHECK(!with_encoder, InputError,
                    "{} holds a Llama vision model, but {} describes a text model; take the file "
                    "of the vision model",
                    path_, config_file.string());
      tie_without_head(description(), tensors, style_, path_);
      match_tensors(source_, std::move(tensors), style_, path_);
      return;
    }
    CARAVAN_CHECK(with_encoder, InputError,
                  "{} holds the text part alone of a Llama vision model ({} describes the whole, "
                  "no tensor is of the image encoder); convert the whole model, which answers "
                  "requests without images as well",
                  path_, config_file.string());
    const VisionNames vision_names(style_, *config.vision, VisionPrefixes::of(names));
    tensors = vision_views(source_, std::move(tensors), vision_names, config, path_);
    check_sizes(config);
    match_tensors(source_, std::move(tensors), vision_names, path_);
  }

  void check_sizes(const model::LlamaConfig& config) const {
    if (const auto problems = config.problems(); !problems.empty())
      throw InputError(fmt::format("{}: {}", path_, fmt::join(problems, "; ")));
  }

  // What params.json leaves open or gives by a formula shows in the weights.
  void take_sizes(MetaParams& params, const std::vector<SourceTensor>& tensors) {
    model::LlamaConfig& config = params.config;
    const auto rows = [&](std::string_view canonical) -> std::optional<std::int64_t> {
      const std::string name = config.vision ? VisionNames(style_, *config.vision).of(canonical)
                                             : source_tensor_name(canonical, style_);
      const SourceTensor* tensor = find_tensor(tensors, name);
      return tensor == nullptr ? std::nullopt : std::optional(tensor->shape[0]);
    };
    if (const auto found = rows("text.embed"); found && !params.has_vocab_size)
      set_vocab_size(config, *found);
    if (const auto found = rows("text.layer.0.w1"); found && *found != config.ffn_size) {
      log::info("{}: feed-forward width {} as in the weights ({} by the formula of params.json)",
                path_, *found, config.ffn_size);
      config.ffn_size = *found;
    }
    if (config.vision) {
      config.vision->width = rows("vision.class").value_or(config.vision->width);
      config.vision->ffn_size = rows("vision.local.0.w1").value_or(config.vision->ffn_size);
    }
    check_sizes(config);
    description().config = config;
  }

  // The files of 3.2 1B and 3B have the embedding a second time, as head.
  void tie_equal_head(const MetaParams& params, const std::vector<SourceTensor>& tensors) {
    if (!params.is_tied_release) return;
    const SourceTensor* embedding = find_tensor(tensors, source_tensor_name("text.embed", style_));
    const SourceTensor* head = find_tensor(tensors, source_tensor_name("text.head", style_));
    description().config.tied_embeddings =
        embedding != nullptr && head != nullptr && same_values(source_.files, *embedding, *head);
  }

  void set_stop_ids(std::vector<std::vector<std::int32_t>> lists) {
    if (description().tokenizer.eos_id) lists.push_back({*description().tokenizer.eos_id});
    description().generation.stop_ids =
        merge_stop_ids(lists, description().config.vocab_size, path_);
  }

  std::string path_;
  SourceOptions options_;
  WeightFiles weights_;
  std::vector<fs::path> places_;
  Source source_;
  NameStyle style_ = NameStyle::kHuggingFace;
};

}  // namespace

Source open_folder(const std::string& path, const SourceOptions& options) {
  return FolderSource(path, options).open();
}

}  // namespace caravan::checkpoint
