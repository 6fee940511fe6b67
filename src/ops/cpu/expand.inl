// Weights of one panel as float32: plain elements, and quantized groups (quantized_groups.h). A
// quantized weight becomes float32 by one multiplication or one FMA, the same in every build; the
// products that follow know nothing of codes.

/// What a panel is made of: groups of columns, each `bytes` long. Plain columns are one each.
template <class Element>
struct Stored {
  static constexpr std::int64_t kColumns = 1;
  static constexpr std::int64_t kBytes = kPanelWidth * std::int64_t{sizeof(Element)};
};
template <>
struct Stored<Int8Group> {
  static constexpr std::int64_t kColumns = 32;
  static constexpr std::int64_t kBytes = sizeof(Int8Group);
};
template <>
struct Stored<Int4Group> {
  static constexpr std::int64_t kColumns = 32;
  static constexpr std::int64_t kBytes = sizeof(Int4Group);
};

/// Bytes from the begin of a panel to column k, which begins a group.
template <class Element>
CARAVAN_INLINE std::int64_t bytes_before(std::int64_t k) {
  return k / Stored<Element>::kColumns * Stored<Element>::kBytes;
}

template <class Element>
CARAVAN_INLINE const Element* at_column(const void* panels, std::int64_t panel, std::int64_t in,
                                        std::int64_t k) {
  return reinterpret_cast<const Element*>(static_cast<const char*>(panels) +
                                          panel * bytes_before<Element>(in) +
                                          bytes_before<Element>(k));
}

/// Where expanded columns go: [k][32], or [half of the panel][k][16].
struct WholeRows {
  float* base;
  CARAVAN_INLINE float* at(std::int64_t k, int v) const { return base + k * kPanelWidth + v * 16; }
};
struct HalfRows {
  float* base;
  std::int64_t half_stride;
  CARAVAN_INLINE float* at(std::int64_t k, int v) const { return base + v * half_stride + k * 16; }
};

template <class Element, class Target>
CARAVAN_INLINE void expand(const Element* source, std::int64_t depth, const Target& target) {
  for (std::int64_t k = 0; k < depth; ++k) {
    for (int v = 0; v < 2; ++v) store(target.at(k, v), load(source + k * kPanelWidth + v * 16));
  }
}

/// Groups that are fetched ahead: what is expanded next, while the products run.
constexpr int kGroupsAhead = 2;

template <class Group>
CARAVAN_INLINE void fetch_ahead(const Group* group, std::int64_t k) {
  prefetch(reinterpret_cast<const char*>(group + kGroupsAhead) +
           k * std::int64_t{sizeof(Group)} / 32);
}

CARAVAN_INLINE Vec load_half_vector(const std::uint16_t* source) {
  return load(reinterpret_cast<const Float16*>(source));
}

template <class Target>
CARAVAN_INLINE void expand(const Int8Group* group, std::int64_t depth, const Target& target) {
  for (std::int64_t k0 = 0; k0 < depth; k0 += 32, ++group) {
    const Vec scale[2] = {load_half_vector(group->scales), load_half_vector(group->scales + 16)};
    for (std::int64_t k = 0; k < 32; ++k) {
      fetch_ahead(group, k);
      for (int v = 0; v < 2; ++v) {
        store(target.at(k0 + k, v), mul(load(group->codes[k] + v * 16), scale[v]));
      }
    }
  }
}

template <class Target>
CARAVAN_INLINE void expand(const Int4Group* group, std::int64_t depth, const Target& target) {
  for (std::int64_t k0 = 0; k0 < depth; k0 += 32, ++group) {
    const Vec scale[2] = {load_half_vector(group->scales), load_half_vector(group->scales + 16)};
    const Vec minimum[2] = {load_half_vector(group->minimums),
                            load_half_vector(group->minimums + 16)};
    for (std::int64_t k = 0; k < 32; ++k) {
      fetch_ahead(group, k);
      Vec code[2];
      load_halves(group->codes[k], code[0], code[1]);
      for (int v = 0; v < 2; ++v) store(target.at(k0 + k, v), fma(code[v], scale[v], minimum[v]));
    }
  }
}
