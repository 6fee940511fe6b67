#include "caravan/checkpoint/pickle.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "caravan/core/error.h"
#include "pickle_input.h"

namespace caravan::checkpoint {
namespace {

constexpr std::int64_t kMaxPickleBytes = std::int64_t{32} << 20;
constexpr std::int64_t kMaxValues = std::int64_t{4} << 20;
constexpr std::size_t kMaxDimensions = 8;

// What a pickle may name.
enum class Callable { kOrderedDict, kRebuildTensor, kRebuildParameter, kStorageType };

constexpr std::array<std::string_view, 10> kStorageTypes = {
    "DoubleStorage", "FloatStorage", "HalfStorage", "BFloat16Storage", "LongStorage",
    "IntStorage",    "ShortStorage", "CharStorage", "ByteStorage",     "BoolStorage"};

enum class Kind : std::uint8_t {
  kScalar,  // None, booleans, reals: nothing that a tensor needs
  kInteger,
  kText,
  kTuple,  // also lists
  kDict,
  kCallable,
  kStorage,
  kTensor
};

using Index = std::uint32_t;  // of a value

// Values refer to each other by index: a pickle can hold cycles, and destroying a value must not
// recurse.
struct Value {
  Kind kind = Kind::kScalar;
  Callable callable = Callable::kOrderedDict;
  std::int64_t integer = 0;
  std::string text;              // also the name of a storage type
  std::vector<Index> items;      // a tuple's; key, value, key, value of a dict
  std::int64_t description = 0;  // index into storages or tensors
};

struct Storage {
  std::string type;
  std::string key;
  std::int64_t elements = 0;
};

class Unpickler {
 public:
  Unpickler(std::span<const std::byte> pickle, const std::string& where)
      : input_(pickle, where), where_(where), size_(std::ssize(pickle)) {}

  std::vector<PickledTensor> run() {
    check(size_ <= kMaxPickleBytes, "it has {} bytes, expected at most {}", size_, kMaxPickleBytes);
    while (step()) {
    }
    check(stack_.size() == 1 && marks_.empty(), "it leaves {} values, expected one", stack_.size());
    return tensors_of(state_dict(stack_[0]));
  }

 private:
  template <typename... Args>
  void check(bool condition, fmt::format_string<Args...> format, Args&&... args) const {
    input_.check(condition, format, std::forward<Args>(args)...);
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw InputError(fmt::format(
        "{}: the pickle asks for {}, which is not part of a plain state dict; for safety nothing "
        "but tensors in dicts is read. Save the model's state_dict() alone, or as safetensors",
        where_, what));
  }

  Index add(Value value) {
    check(std::ssize(values_) < kMaxValues, "it has more than {} values", kMaxValues);
    values_.push_back(std::move(value));
    return static_cast<Index>(values_.size() - 1);
  }
  void push(Value value) { stack_.push_back(add(std::move(value))); }
  void push_integer(std::int64_t value) { push({.kind = Kind::kInteger, .integer = value}); }
  void push_text(std::string value) { push({.kind = Kind::kText, .text = std::move(value)}); }

  // Values below the last mark belong to somebody else.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Index pop() {
    check(stack_.size() > floor(), "a value is missing");
    const Index top = stack_.back();
    stack_.pop_back();
    return top;
  }
  std::vector<Index> pop_to_mark() {
    check(!marks_.empty(), "a mark is missing");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Index> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<Index> pop_several(std::size_t count) {
    std::vector<Index> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }
  Value& top(Kind kind, const char* what) {
    check(stack_.size() > floor(), "a value is missing");
    Value& value = values_[stack_.back()];
    check(value.kind == kind, "something is added to what is not {}", what);
    return value;
  }
  void push_tuple(std::vector<Index> items) {
    push({.kind = Kind::kTuple, .items = std::move(items)});
  }
  void append(std::vector<Index>& target, const std::vector<Index>& items) {
    // Items may be shared: bounds what a short pickle can make of them.
    total_items_ += std::ssize(items);
    check(total_items_ <= 2 * kMaxValues, "it has more than {} entries", 2 * kMaxValues);
    target.insert(target.end(), items.begin(), items.end());
  }
  void set_items(const std::vector<Index>& items) {
    Value& dict = top(Kind::kDict, "a dict");
    check(items.size() % 2 == 0, "a key without a value");
    append(dict.items, items);
  }

  bool step() {
    const auto op = static_cast<Op>(input_.number<std::uint8_t>());
    switch (op) {
      case Op::kStop: return false;
      case Op::kProto: {
        const auto version = input_.number<std::uint8_t>();
        check(version >= 2 && version <= 5, "protocol {}, expected 2 to 5", version);
        return true;
      }
      case Op::kFrame: input_.number<std::uint64_t>(); return true;
      case Op::kMark: marks_.push_back(stack_.size()); return true;
      case Op::kPop: pop(); return true;
      case Op::kPopMark: pop_to_mark(); return true;
      case Op::kNone:
      case Op::kNewTrue:
      case Op::kNewFalse: push({}); return true;
      case Op::kBinFloat: input_.number<double>(), push({}); return true;
      case Op::kBinInt: push_integer(input_.number<std::int32_t>()); return true;
      case Op::kBinInt1: push_integer(input_.number<std::uint8_t>()); return true;
      case Op::kBinInt2: push_integer(input_.number<std::uint16_t>()); return true;
      case Op::kLong1: push_integer(long_integer()); return true;
      case Op::kBinString: push_text(input_.text(input_.number<std::uint32_t>())); return true;
      case Op::kShortBinString: push_text(input_.text(input_.number<std::uint8_t>())); return true;
      case Op::kBinUnicode: push_text(input_.text(input_.number<std::uint32_t>())); return true;
      case Op::kShortBinUnicode: push_text(input_.text(input_.number<std::uint8_t>())); return true;
      case Op::kBinUnicode8: push_text(input_.text(input_.number<std::uint64_t>())); return true;
      default: return collection_step(op);
    }
  }

  bool collection_step(Op op) {
    switch (op) {
      case Op::kEmptyTuple:
      case Op::kEmptyList: push_tuple({}); return true;
      case Op::kTuple: push_tuple(pop_to_mark()); return true;
      case Op::kTuple1: push_tuple(pop_several(1)); return true;
      case Op::kTuple2: push_tuple(pop_several(2)); return true;
      case Op::kTuple3: push_tuple(pop_several(3)); return true;
      case Op::kEmptyDict: push({.kind = Kind::kDict}); return true;
      case Op::kSetItem: set_items(pop_several(2)); return true;
      case Op::kSetItems: set_items(pop_to_mark()); return true;
      case Op::kAppend: append_to_list(pop_several(1)); return true;
      case Op::kAppends: append_to_list(pop_to_mark()); return true;
      case Op::kBinPut: memo_[input_.number<std::uint8_t>()] = remembered(); return true;
      case Op::kLongBinPut: memo_[input_.number<std::uint32_t>()] = remembered(); return true;
      case Op::kMemoize: {
        const auto next = static_cast<std::uint32_t>(memo_.size());
        memo_[next] = remembered();
        return true;
      }
      case Op::kBinGet: recall(input_.number<std::uint8_t>()); return true;
      case Op::kLongBinGet: recall(input_.number<std::uint32_t>()); return true;
      default: return object_step(op);
    }
  }

  bool object_step(Op op) {
    switch (op) {
      case Op::kGlobal: {
        const std::string module = input_.line();
        push_callable(module, input_.line());
        return true;
      }
      case Op::kStackGlobal: {
        const std::vector<Index> names = pop_several(2);
        push_callable(text_of(names[0]), text_of(names[1]));
        return true;
      }
      case Op::kBinPersId: push_storage(pop()); return true;
      case Op::kReduce: reduce(); return true;
      case Op::kBuild:  // attributes of a state dict (_metadata): module versions
        pop();
        top(Kind::kDict, "a dict");
        return true;
      default: refuse(fmt::format("the operation {:#04x}", static_cast<unsigned>(op)));
    }
  }

  std::int64_t long_integer() {
    const auto count = input_.number<std::uint8_t>();
    const auto bytes = input_.take(count);
    check(count <= 8, "an integer of {} bytes, expected at most 8", count);
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i)
      value |= std::to_integer<std::uint64_t>(bytes[i]) << 8 * i;
    const bool negative = count > 0 && std::to_integer<int>(bytes.back() >> 7) != 0;
    if (negative && count < 8) value |= ~std::uint64_t{0} << 8 * count;
    return static_cast<std::int64_t>(value);
  }

  void append_to_list(const std::vector<Index>& items) {
    append(top(Kind::kTuple, "a list").items, items);
  }
  Index remembered() const {
    check(stack_.size() > floor(), "a value is missing");
    return stack_.back();
  }
  void recall(std::uint32_t key) {
    const auto found = memo_.find(key);
    check(found != memo_.end(), "the remembered value {} is missing", key);
    check(std::ssize(stack_) < kMaxValues, "it has more than {} values", kMaxValues);
    stack_.push_back(found->second);
  }

  void push_callable(const std::string& module, const std::string& name) {
    Value value = {.kind = Kind::kCallable};
    if (module == "collections" && name == "OrderedDict") {
      value.callable = Callable::kOrderedDict;
    } else if (module == "torch._utils" && name == "_rebuild_tensor_v2") {
      value.callable = Callable::kRebuildTensor;
    } else if (module == "torch._utils" && name == "_rebuild_parameter") {
      value.callable = Callable::kRebuildParameter;
    } else if (module == "torch" &&
               std::find(kStorageTypes.begin(), kStorageTypes.end(), name) != kStorageTypes.end()) {
      value.callable = Callable::kStorageType;
      value.text = name;
    } else {
      refuse(fmt::format("\"{}.{}\"", printable(module), printable(name)));
    }
    push(std::move(value));
  }
  static std::string printable(std::string text) {
    text.resize(std::min<std::size_t>(text.size(), 100));
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return text;
  }

  // ("storage", type, key, device, elements)
  void push_storage(Index id) {
    const std::vector<Index> fields = tuple_of(id, 5, 5);
    check(text_of(fields[0]) == "storage", "an unknown kind of persistent value");
    const Value& type = values_[fields[1]];
    check(type.kind == Kind::kCallable && type.callable == Callable::kStorageType,
          "a storage without a type");
    storages_.push_back({type.text, text_of(fields[2]), integer_of(fields[4])});
    push({.kind = Kind::kStorage, .description = std::ssize(storages_) - 1});
  }

  void reduce() {
    const Index arguments = pop();
    const Index function = pop();
    check(values_[function].kind == Kind::kCallable, "a call of something that is no function");
    switch (values_[function].callable) {
      case Callable::kOrderedDict:
        tuple_of(arguments, 0, 0);
        push({.kind = Kind::kDict});
        return;
      case Callable::kRebuildTensor: rebuild_tensor(tuple_of(arguments, 6, 7)); return;
      case Callable::kRebuildParameter: {
        const std::vector<Index> fields = tuple_of(arguments, 3, 3);
        check(values_[fields[0]].kind == Kind::kTensor, "a parameter without a tensor");
        stack_.push_back(fields[0]);
        return;
      }
      case Callable::kStorageType: refuse("an empty " + values_[function].text);
    }
  }

  // (storage, offset, shape, strides, requires_grad, hooks[, metadata])
  void rebuild_tensor(const std::vector<Index>& fields) {
    check(values_[fields[0]].kind == Kind::kStorage, "a tensor without a storage");
    const Storage& storage = storages_[static_cast<std::size_t>(values_[fields[0]].description)];
    PickledTensor tensor = {"",
                            storage.type,
                            storage.key,
                            storage.elements,
                            integer_of(fields[1]),
                            integers_of(fields[2]),
                            integers_of(fields[3])};
    check(tensor.shape.size() == tensor.strides.size(), "a tensor with {} extents and {} strides",
          tensor.shape.size(), tensor.strides.size());
    tensors_.push_back(std::move(tensor));
    push({.kind = Kind::kTensor, .description = std::ssize(tensors_) - 1});
  }

  const std::string& text_of(Index index) const {
    check(values_[index].kind == Kind::kText, "something where a text is expected");
    return values_[index].text;
  }
  std::int64_t integer_of(Index index) const {
    check(values_[index].kind == Kind::kInteger, "something where an integer is expected");
    return values_[index].integer;
  }
  const std::vector<Index>& tuple_of(Index index, std::size_t least, std::size_t most) const {
    const Value& value = values_[index];
    check(value.kind == Kind::kTuple && value.items.size() >= least && value.items.size() <= most,
          "something where a tuple of {} to {} values is expected", least, most);
    return value.items;
  }
  std::vector<std::int64_t> integers_of(Index index) const {
    std::vector<std::int64_t> values;
    for (const Index item : tuple_of(index, 0, kMaxDimensions)) values.push_back(integer_of(item));
    return values;
  }

  // The dict that holds tensors: the outermost one or one level below.
  const Value& state_dict(Index result) const {
    const Value* dict = &values_[result];
    check(dict->kind == Kind::kDict, "it holds no dict of tensors (a whole model object?)");
    for (std::size_t i = 0; i + 1 < dict->items.size(); i += 2) {
      const Value& key = values_[dict->items[i]];
      const Value& value = values_[dict->items[i + 1]];
      if (key.kind == Kind::kText && value.kind == Kind::kDict &&
          (key.text == "model" || key.text == "module" || key.text == "state_dict"))
        return value;
    }
    return *dict;
  }

  std::vector<PickledTensor> tensors_of(const Value& dict) const {
    std::vector<PickledTensor> found;
    std::set<std::string> names;
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      const Value& value = values_[dict.items[i + 1]];
      if (value.kind != Kind::kTensor) continue;
      const std::string& name = text_of(dict.items[i]);
      check(names.insert(name).second, "it has the tensor \"{}\" twice", printable(name));
      found.push_back(tensors_[static_cast<std::size_t>(value.description)]);
      found.back().name = name;
    }
    check(!found.empty(), "it holds no tensors");
    return found;
  }

  PickleInput input_;
  const std::string& where_;
  std::int64_t size_;
  std::vector<Value> values_;
  std::vector<Index> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint32_t, Index> memo_;
  std::vector<Storage> storages_;
  std::vector<PickledTensor> tensors_;
  std::int64_t total_items_ = 0;
};

}  // namespace

std::vector<PickledTensor> read_pickled_tensors(std::span<const std::byte> pickle,
                                                const std::string& where) {
  return Unpickler(pickle, where).run();
}

}  // namespace caravan::checkpoint
