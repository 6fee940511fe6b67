#include "model_index.h"

#include "caravan/io/sha256.h"

namespace caravan::checkpoint {
namespace {

// What only SentencePiece tokenizers have. The others put nothing here, so that the hashes of their
// files stay what they were before these fields existed.
void put_sentencepiece(ByteWriter& out, const text::TokenizerSpec& spec) {
  if (spec.kind != text::TokenizerKind::kSentencePiece) return;
  out.put_list(spec.scores);
  out.put_list(spec.byte_ids);
  out.put(spec.space_prefix);
  out.put(spec.remove_extra_spaces);
  for (const text::AddedToken& token : spec.added_tokens) out.put(token.normalized);
}

void get_sentencepiece(ByteReader& in, text::TokenizerSpec& spec) {
  if (spec.kind != text::TokenizerKind::kSentencePiece) return;
  in.get_list(spec.scores);
  in.get_list(spec.byte_ids);
  in.get(spec.space_prefix);
  in.get(spec.remove_extra_spaces);
  for (text::AddedToken& token : spec.added_tokens) in.get(token.normalized);
}

void put_tokenizer(ByteWriter& out, const text::TokenizerSpec& spec) {
  out.put(spec.kind);
  out.put_list(spec.tokens);
  out.put_list(spec.merges, [&](const auto& merge) {
    out.put(merge.first);
    out.put(merge.second);
  });
  out.put_list(spec.added_tokens, [&](const text::AddedToken& token) {
    out.put(token.id);
    out.put(token.content);
    out.put(token.special);
  });
  out.put_list(spec.split_patterns);
  out.put(spec.ignore_merges);
  out.put(spec.bos_id);
  out.put(spec.eos_id);
  out.put(spec.unknown_id);
  out.put(spec.add_bos);
  put_sentencepiece(out, spec);
}

void get_tokenizer(ByteReader& in, text::TokenizerSpec& spec) {
  in.get(spec.kind);
  in.get_list(spec.tokens);
  in.get_list(spec.merges, [&](auto& merge) {
    in.get(merge.first);
    in.get(merge.second);
  });
  in.get_list(spec.added_tokens, [&](text::AddedToken& token) {
    in.get(token.id);
    in.get(token.content);
    in.get(token.special);
  });
  in.get_list(spec.split_patterns);
  in.get(spec.ignore_merges);
  in.get(spec.bos_id);
  in.get(spec.eos_id);
  in.get(spec.unknown_id);
  in.get(spec.add_bos);
  get_sentencepiece(in, spec);
}

// Text models put nothing here, so that their hashes stay what they were.
void put_vision(ByteWriter& out, const model::VisionConfig& vision) {
  for (const std::int64_t size :
       {vision.tile_size, vision.patch_size, vision.width, vision.num_heads, vision.ffn_size,
        vision.num_local_layers, vision.num_global_layers, vision.image_token_id,
        vision.extra_embeddings})
    out.put(size);
  out.put_list(vision.saved_layers);
  out.put(vision.norm_epsilon);
  out.put_list(vision.cross_layers);
}

// Field by field and not as JSON text, so that the hash of a file outlives changes of the text's
// form.
void put_config(ByteWriter& out, const model::LlamaConfig& config) {
  for (const std::int64_t size :
       {config.vocab_size, config.hidden_size, config.ffn_size, config.num_layers, config.num_heads,
        config.num_kv_heads, config.head_dim, config.max_positions})
    out.put(size);
  out.put(config.norm_epsilon);
  out.put(config.rope_theta);
  out.put(config.rope_scaling.kind);
  out.put(config.rope_scaling.factor);
  out.put(config.rope_scaling.low_freq_factor);
  out.put(config.rope_scaling.high_freq_factor);
  out.put(config.rope_scaling.original_max_positions);
  out.put_list(config.rope_divisors);
  out.put(config.tied_embeddings);
  out.put(config.attention_bias);
  out.put(config.mlp_bias);
  if (config.vision) put_vision(out, *config.vision);
}

// The rest of what decides answers.
void put_content(ByteWriter& out, const ModelDescription& description) {
  out.put(description.dtype);
  put_tokenizer(out, description.tokenizer);
  out.put(description.chat_template);
  out.put(description.chat_format);
  out.put(description.chat_default_system);
  const GenerationDefaults& generation = description.generation;
  out.put(generation.temperature);
  out.put(generation.top_p);
  out.put(generation.top_k);
  out.put(generation.repetition_penalty);
  out.put_list(generation.stop_ids);
}

void get_content(ByteReader& in, ModelDescription& description) {
  in.get(description.dtype);
  get_tokenizer(in, description.tokenizer);
  in.get(description.chat_template);
  in.get(description.chat_format);
  in.get(description.chat_default_system);
  GenerationDefaults& generation = description.generation;
  in.get(generation.temperature);
  in.get(generation.top_p);
  in.get(generation.top_k);
  in.get(generation.repetition_penalty);
  in.get_list(generation.stop_ids);
}

}  // namespace

void put_index(ByteWriter& out, const ModelIndex& index) {
  out.put(index.path);
  out.put(index.file_bytes);
  out.put(index.description.name);
  out.put(index.description.source);
  out.put(index.description.created_by);
  out.put(index.description.content_hash);
  out.put(model::to_json(index.description.config));
  put_content(out, index.description);
  // The specs follow from the configuration; only places and checksums are sent.
  out.put_list(index.tensors, [&](const StoredTensor& tensor) {
    out.put(tensor.dtype);
    out.put(tensor.file_offset);
    out.put(tensor.bytes);
    out.put_list(tensor.band_crc32c);
  });
}

void get_index(ByteReader& in, ModelIndex& index) {
  in.get(index.path);
  in.get(index.file_bytes);
  in.get(index.description.name);
  in.get(index.description.source);
  in.get(index.description.created_by);
  in.get(index.description.content_hash);
  std::string config;
  in.get(config);
  index.description.config = model::llama_config_from_json(config);
  get_content(in, index.description);
  const std::vector<model::TensorSpec> specs = model::tensor_specs(index.description.config);
  in.get_list(index.tensors, [&](StoredTensor& tensor) {
    in.get(tensor.dtype);
    in.get(tensor.file_offset);
    in.get(tensor.bytes);
    in.get_list(tensor.band_crc32c);
  });
  CARAVAN_ASSERT(index.tensors.size() == specs.size() && in.at_end(),
                 "an index of {} tensors for {} specs", index.tensors.size(), specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) index.tensors[i].spec = specs[i];
}

std::string content_hash(const ModelDescription& description,
                         const std::vector<StoredTensor>& tensors) {
  ByteWriter content;
  content.put(kFormatVersion);
  put_config(content, description.config);
  put_content(content, description);
  content.put_list(tensors, [&](const StoredTensor& tensor) {
    content.put(tensor.spec.name);
    content.put(tensor.dtype);
    content.put(tensor.spec.rows);
    content.put(tensor.spec.columns);
    content.put_list(tensor.band_crc32c);
  });
  io::Sha256 hash;
  hash.update(content.take());
  return hash.hex_digest();
}

}  // namespace caravan::checkpoint
