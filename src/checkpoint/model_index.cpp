#include "model_index.h"

#include "caravan/io/sha256.h"
#include "caravan/model/stored_parts.h"
#include "token_bits.h"

namespace caravan::checkpoint {
namespace {

// The functions on fields serve writer and reader: `Bytes` is ByteWriter, and what it writes const,
// or ByteReader.

// What only SentencePiece tokenizers have. The others put nothing here, so that the hashes of their
// files stay what they were before these fields existed.
template <typename Bytes, typename Spec>
void sentencepiece_fields(Bytes& bytes, Spec& spec) {
  if (spec.kind != text::TokenizerKind::kSentencePiece) return;
  bytes.list(spec.scores);
  bytes.list(spec.byte_ids);
  bytes.field(spec.space_prefix);
  bytes.field(spec.remove_extra_spaces);
  for (auto& token : spec.added_tokens) bytes.field(token.normalized);
}

// One byte, as "special" alone had: the hash of a file without further options stays what it was.
void options_field(ByteWriter& bytes, const text::AddedToken& token) {
  bytes.field(static_cast<std::uint8_t>(token_bits(token) & ~kNormalizedBit));
}
void options_field(ByteReader& bytes, text::AddedToken& token) {
  std::uint8_t bits = 0;
  bytes.field(bits);
  set_token_bits(token, bits);
}

template <typename Bytes, typename Spec>
void tokenizer_fields(Bytes& bytes, Spec& spec) {
  bytes.field(spec.kind);
  bytes.list(spec.tokens);
  bytes.list(spec.merges, [&](auto& merge) {
    bytes.field(merge.first);
    bytes.field(merge.second);
  });
  bytes.list(spec.added_tokens, [&](auto& token) {
    bytes.field(token.id);
    bytes.field(token.content);
    options_field(bytes, token);
  });
  bytes.list(spec.split_patterns);
  bytes.field(spec.ignore_merges);
  bytes.field(spec.bos_id);
  bytes.field(spec.eos_id);
  bytes.field(spec.unknown_id);
  bytes.field(spec.add_bos);
  sentencepiece_fields(bytes, spec);
}

// Text models put nothing here, so that their hashes stay what they were.
void put_vision(ByteWriter& out, const model::VisionConfig& vision) {
  for (const std::int64_t size :
       {vision.tile_size, vision.patch_size, vision.width, vision.num_heads, vision.ffn_size,
        vision.num_local_layers, vision.num_global_layers, vision.image_token_id,
        vision.extra_embeddings})
    out.field(size);
  out.list(vision.saved_layers);
  out.field(vision.norm_epsilon);
  out.list(vision.cross_layers);
}

// Field by field and not as JSON text, so that the hash of a file outlives changes of the text's
// form.
void put_config(ByteWriter& out, const model::LlamaConfig& config) {
  for (const std::int64_t size :
       {config.vocab_size, config.hidden_size, config.ffn_size, config.num_layers, config.num_heads,
        config.num_kv_heads, config.head_dim, config.max_positions})
    out.field(size);
  out.field(config.norm_epsilon);
  out.field(config.rope_theta);
  out.field(config.rope_scaling.kind);
  out.field(config.rope_scaling.factor);
  out.field(config.rope_scaling.low_freq_factor);
  out.field(config.rope_scaling.high_freq_factor);
  out.field(config.rope_scaling.original_max_positions);
  out.list(config.rope_divisors);
  out.field(config.tied_embeddings);
  out.field(config.attention_bias);
  out.field(config.mlp_bias);
  if (config.vision) put_vision(out, *config.vision);
}

// The rest of what decides answers.
template <typename Bytes, typename Description>
void content_fields(Bytes& bytes, Description& description) {
  bytes.field(description.dtype);
  tokenizer_fields(bytes, description.tokenizer);
  bytes.field(description.chat_template);
  bytes.field(description.chat_format);
  bytes.field(description.chat_default_system);
  auto& generation = description.generation;
  bytes.field(generation.temperature);
  bytes.field(generation.top_p);
  bytes.field(generation.top_k);
  bytes.field(generation.repetition_penalty);
  bytes.list(generation.stop_ids);
}

// The configuration is sent as text. The specs follow from it: of the tensors only places and
// checksums are sent.
template <typename Bytes, typename Index, typename Text>
void index_fields(Bytes& bytes, Index& index, Text& config) {
  bytes.field(index.path);
  bytes.field(index.file_bytes);
  bytes.field(index.description.name);
  bytes.field(index.description.source);
  bytes.field(index.description.created_by);
  bytes.field(index.description.content_hash);
  bytes.field(config);
  content_fields(bytes, index.description);
  bytes.list(index.tensors, [&](auto& tensor) {
    bytes.field(tensor.dtype);
    bytes.field(tensor.file_offset);
    bytes.field(tensor.bytes);
    bytes.list(tensor.band_crc32c);
  });
}

}  // namespace

void put_index(ByteWriter& out, const ModelIndex& index) {
  const std::string config = model::to_json(index.description.config);
  index_fields(out, index, config);
}

void get_index(ByteReader& in, ModelIndex& index) {
  std::string config;
  index_fields(in, index, config);
  index.description.config = model::llama_config_from_json(config);
  const auto parts = model::all_stored_parts(index.description.config, index.description.dtype);
  CARAVAN_ASSERT(index.tensors.size() == parts.size() && in.at_end(),
                 "an index of {} tensors for {} specs", index.tensors.size(), parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) index.tensors[i].spec = parts[i].spec;
}

std::string content_hash(const ModelDescription& description,
                         const std::vector<StoredTensor>& tensors) {
  ByteWriter content;
  content.field(kFormatVersion);
  put_config(content, description.config);
  content_fields(content, description);
  content.list(tensors, [&](const StoredTensor& tensor) {
    content.field(tensor.spec.name);
    content.field(tensor.dtype);
    content.field(tensor.spec.rows);
    content.field(tensor.spec.columns);
    content.list(tensor.band_crc32c);
  });
  io::Sha256 hash;
  hash.update(content.take());
  return hash.hex_digest();
}

}  // namespace caravan::checkpoint
