// Folders of Hugging Face, Meta and torchtune: a description (config.json or params.json), weights,
// tokenizer and chat template files.

#include <algorithm>
#include <filesystem>
#include <utility>

#include "caravan/checkpoint/hf_config.h"
#include "caravan/checkpoint/meta_config.h"
#include "caravan/core/error.h"
#include "caravan/core/log.h"
#include "meta_shards.h"
#include "source_parts.h"
#include "text_files.h"
#include "weight_files.h"

namespace caravan::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHfConfig = "config.json";
constexpr const char* kMetaConfig = "params.json";

std::string folder_name(const fs::path& folder) {
  const fs::path absolute = fs::absolute(folder).lexically_normal();
  return absolute.has_filename() ? absolute.filename().string()
                                 : absolute.parent_path().filename().string();
}

fs::path parent(const fs::path& folder) {
  const fs::path absolute = fs::absolute(folder).lexically_normal();
  return (absolute.has_filename() ? absolute : absolute.parent_path()).parent_path();
}

// "original" (Meta's form beside the Hugging Face one) and torchtune's "epoch_0" name no model.
bool is_part_of_model(const fs::path& folder) {
  const std::string name = folder_name(folder);
  return name == "original" || name.starts_with("epoch_");
}

std::string model_name(const fs::path& folder) {
  return is_part_of_model(folder) ? folder_name(parent(folder)) : folder_name(folder);
}

// Where files of the model may lie. Meta puts the tokenizer of several models beside their folders;
// torchtune leaves configuration and tokenizer beside its epochs.
std::vector<fs::path> places_of(const WeightFiles& weights) {
  std::vector<fs::path> places = {weights.folder};
  if (weights.layout == WeightFiles::Layout::kModelParallel || is_part_of_model(weights.folder))
    places.push_back(parent(weights.folder));
  return places;
}

NameStyle recognise_names(const std::vector<std::vector<SourceTensor>>& files) {
  NameStyle style = NameStyle::kHuggingFace;
  for (const auto& tensors : files) {
    for (const SourceTensor& tensor : tensors) {
      if (tensor.name.ends_with(".sa_norm.scale")) return NameStyle::kTorchtune;
      if (tensor.name == "tok_embeddings.weight") style = NameStyle::kMeta;
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
      : path_(path),
        options_(options),
        weights_(find_weight_files(path)),
        places_(places_of(weights_)) {}

  Source open() {
    const fs::path config = find_config();
    std::vector<std::vector<SourceTensor>> files = read_weight_files(source_, weights_);
    style_ = recognise_names(files);
    source_.head_order =
        style_ == NameStyle::kHuggingFace ? HeadOrder::kHalfSplit : HeadOrder::kInterleaved;
    description().name = presentable_name(options_.name.value_or(model_name(weights_.folder)));
    description().source =
        fmt::format("{} folder {}, {} weight file(s)", name_style_name(style_),
                    presentable_name(folder_name(weights_.folder)), source_.files.size());
    if (config.filename() == kMetaConfig) {
      open_meta(config, std::move(files));
    } else {
      open_hugging_face(config, std::move(files));
    }
    choose_chat_format(description(), options_, path_);
    check_tokenizer(description(), path_);
    return std::move(source_);
  }

 private:
  ModelDescription& description() { return source_.description; }

  // Meta's weights are described by Meta's file where both are there.
  fs::path find_config() const {
    const bool meta_first = weights_.layout == WeightFiles::Layout::kModelParallel;
    for (const fs::path& place : places_) {
      for (const char* name :
           {meta_first ? kMetaConfig : kHfConfig, meta_first ? kHfConfig : kMetaConfig}) {
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
    std::vector<SourceTensor> tensors =
        weights_.layout == WeightFiles::Layout::kModelParallel
            ? join_shares(source_, std::move(files), description().config, path_)
            : flattened(std::move(files));
    tie_without_head(description(), tensors, style_, path_);
    match_tensors(source_, std::move(tensors), style_, path_);
    description().tokenizer = read_tokenizer(places_, description().config.vocab_size);
    description().chat_template = read_chat_template(places_);
    if (const fs::path generation = find_file(places_, "generation_config.json");
        !generation.empty()) {
      description().generation = parse_generation_config(
          read_small_file(generation, kMaxConfigBytes), generation.string());
    }
    set_stop_ids({description().generation.stop_ids, parsed.stop_ids});
  }

  void open_meta(const fs::path& config, std::vector<std::vector<SourceTensor>> files) {
    MetaParams params =
        parse_meta_params(read_small_file(config, kMaxConfigBytes), config.string());
    std::vector<SourceTensor> tensors =
        join_shares(source_, std::move(files), params.config, path_);
    take_sizes(params, tensors);
    tie_without_head(description(), tensors, style_, path_);
    tie_equal_head(params, tensors);
    match_tensors(source_, std::move(tensors), style_, path_);
    description().tokenizer = read_tokenizer(places_, description().config.vocab_size);
    complete_meta_config(params, description().tokenizer.kind);
    description().config.rope_theta = params.config.rope_theta;
    description().config.max_positions = params.config.max_positions;
    set_stop_ids({end_of_text_ids(description().tokenizer.added_tokens)});
    guess_chat_format();
  }

  // What params.json leaves open or gives by a formula shows in the weights.
  void take_sizes(MetaParams& params, const std::vector<SourceTensor>& tensors) {
    model::LlamaConfig& config = params.config;
    const SourceTensor* embedding = find_tensor(tensors, source_tensor_name("text.embed", style_));
    if (!params.has_vocab_size && embedding != nullptr) config.vocab_size = embedding->shape[0];
    const SourceTensor* gate = find_tensor(tensors, source_tensor_name("text.layer.0.w1", style_));
    if (gate != nullptr && gate->shape[0] != config.ffn_size) {
      log::info("{}: feed-forward width {} as in the weights ({} by the formula of params.json)",
                path_, gate->shape[0], config.ffn_size);
      config.ffn_size = gate->shape[0];
    }
    if (const auto problems = config.problems(); !problems.empty())
      throw InputError(fmt::format("{}: {}", path_, fmt::join(problems, "; ")));
    description().config = config;
  }

  // The files of 3.2 1B and 3B have the embedding a second time, as head.
  void tie_equal_head(const MetaParams& params, const std::vector<SourceTensor>& tensors) {
    if (!params.is_tied_release || description().config.tied_embeddings) return;
    const SourceTensor* embedding = find_tensor(tensors, source_tensor_name("text.embed", style_));
    const SourceTensor* head = find_tensor(tensors, source_tensor_name("text.head", style_));
    description().config.tied_embeddings =
        embedding != nullptr && same_values(source_.files, *embedding, *head);
  }

  void set_stop_ids(std::vector<std::vector<std::int32_t>> lists) {
    if (description().tokenizer.eos_id) lists.push_back({*description().tokenizer.eos_id});
    description().generation.stop_ids =
        merge_stop_ids(lists, description().config.vocab_size, path_);
  }

  // Meta's folders have no template: only the name tells base models and tuned ones apart.
  void guess_chat_format() {
    if (options_.chat_format) return;
    std::string name = description().name;
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (name.find("instruct") == std::string::npos && name.find("chat") == std::string::npos) {
      log::info("{} has no chat template and is taken as a base model; --chat-format chooses one",
                path_);
      return;
    }
    const model::LlamaConfig& config = description().config;
    text::ChatFormatKind kind = text::ChatFormatKind::kLlama3;
    if (description().tokenizer.kind == text::TokenizerKind::kSentencePiece)
      kind = text::ChatFormatKind::kLlama2;
    else if (config.rope_scaling.kind == model::RopeScalingKind::kLlama3)
      kind = text::ChatFormatKind::kLlama31;
    log::warning("{} has no chat template; {} is chosen by its name (--chat-format overrides)",
                 path_, text::chat_format_name(kind));
    options_.chat_format = kind;
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
