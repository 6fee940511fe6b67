#include "jinja_template.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "caravan/core/error.h"
#include "caravan/core/exception_text.h"
#include "jinja_node.h"
#include "jinja_values.h"

namespace caravan::text::jinja {
namespace {

// Far above what chat templates need for a few messages.
constexpr std::int64_t kMaxSteps = 50'000;
constexpr std::int64_t kMaxWork = 16'000'000;  // bytes of all values that appear
constexpr std::size_t kMaxOutputBytes = std::size_t{1} << 20;
constexpr int kMaxValueDepth = 30;

/// Functions and classes that templates can ask for. "range" and so on cannot be called here.
bool is_function(std::string_view name) {
  constexpr std::array kNames = {"raise_exception", "strftime_now", "namespace", "range", "dict",
                                 "lipsum",          "cycler",       "joiner"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// About the bytes of a value. Values are copied, so that it is also about the time they take.
std::int64_t weight(const Value& value, int depth = 0) {
  CARAVAN_CHECK(depth <= kMaxValueDepth, InputError, "a value is nested more than {} deep",
                kMaxValueDepth);
  if (value.is_string()) return 16 + std::ssize(value.get_ref<const std::string&>());
  std::int64_t total = 16;
  if (value.is_structured()) {
    for (const Value& entry : value) total += weight(entry, depth + 1);
  }
  return total;
}

using Kind = Node::Kind;

class Run {
 public:
  Run(const Value& variables, const std::string& now) : now_(now) {
    scopes_.emplace_back();
    for (const auto& [name, value] : variables.items()) scopes_.back()[name] = value;
  }

  void execute(const Body& body) {
    for (const NodePtr& statement : body) execute(*statement);
  }
  std::string take_output() { return std::move(output_); }

 private:
  void count() {
    CARAVAN_CHECK(++steps_ <= kMaxSteps, InputError, "it takes more than {} steps", kMaxSteps);
  }

  void print(std::string_view text) {
    output_.append(text);
    CARAVAN_CHECK(output_.size() <= kMaxOutputBytes, InputError, "it prints more than {} bytes",
                  kMaxOutputBytes);
  }

  void execute(const Node& statement) {
    count();
    switch (statement.kind) {
      case Kind::kText: print(statement.name); return;
      case Kind::kPrint: print(printed(evaluate(*statement.children[0]))); return;
      case Kind::kGroup: execute(statement.bodies[0]); return;
      case Kind::kSet: set(statement); return;
      case Kind::kIf: choose(statement); return;
      case Kind::kFor: loop(statement); return;
      default: throw InternalError("an expression stands for a statement");
    }
  }

  void choose(const Node& statement) {
    for (std::size_t i = 0; i < statement.bodies.size(); ++i) {
      const Node* condition = statement.children[i].get();
      if (condition != nullptr && !is_true(evaluate(*condition))) continue;
      execute(statement.bodies[i]);
      return;
    }
  }

  void set(const Node& statement) {
    Value value;
    if (statement.bodies.empty()) {
      value = evaluate(*statement.children[0]);
    } else {
      std::string outer = std::exchange(output_, {});
      execute(statement.bodies[0]);
      value = std::exchange(output_, std::move(outer));
    }
    if (statement.attribute.empty()) {
      scopes_.back()[statement.name] = std::move(value);
      return;
    }
    Value* target = find(statement.name);
    CARAVAN_CHECK(target != nullptr && target->is_object(), InputError, "\"{}\" is no namespace",
                  statement.name);
    (*target)[statement.attribute] = std::move(value);
  }

  void bind(const Node& statement, const Value& entry) {
    if (statement.names.size() == 1) {
      scopes_.back()[statement.names[0]] = entry;
      return;
    }
    CARAVAN_CHECK(entry.is_array() && entry.size() == statement.names.size(), InputError,
                  "a loop over {} names needs lists of as many values", statement.names.size());
    for (std::size_t i = 0; i < entry.size(); ++i) scopes_.back()[statement.names[i]] = entry[i];
  }

  void loop(const Node& statement) {
    Value all = evaluate(*statement.children[0]);
    if (all.is_discarded()) all = Value::array();
    if (all.is_object() || all.is_string()) all = filtered("list", all, {}, {});
    CARAVAN_CHECK(all.is_array(), InputError, "a loop needs a list, found a value of the kind {}",
                  all.type_name());
    Value entries = Value::array();
    for (const Value& entry : all) {
      if (statement.children[1] != nullptr) {
        scopes_.emplace_back();
        bind(statement, entry);
        const bool kept = is_true(evaluate(*statement.children[1]));
        scopes_.pop_back();
        if (!kept) continue;
      }
      entries.push_back(entry);
    }
    if (entries.empty()) return execute(statement.bodies[1]);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      scopes_.emplace_back();
      Value about = {{"index0", i},
                     {"index", i + 1},
                     {"first", i == 0},
                     {"last", i + 1 == entries.size()},
                     {"length", entries.size()},
                     {"depth", 1},
                     {"depth0", 0},
                     {"revindex", entries.size() - i},
                     {"revindex0", entries.size() - i - 1}};
      if (i > 0) about["previtem"] = entries[i - 1];
      if (i + 1 < entries.size()) about["nextitem"] = entries[i + 1];
      scopes_.back()["loop"] = std::move(about);
      bind(statement, entries[i]);
      execute(statement.bodies[0]);
      scopes_.pop_back();
    }
  }

  Value* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return &found->second;
    }
    return nullptr;
  }

  Value evaluate(const Node& node) {
    count();
    Value value = value_of(node);
    work_ += weight(value);
    CARAVAN_CHECK(work_ <= kMaxWork, InputError, "it takes more than {} bytes of values", kMaxWork);
    return value;
  }

  Value value_of(const Node& node) {
    switch (node.kind) {
      case Kind::kLiteral: return node.literal;
      case Kind::kVariable: {
        const Value* found = find(node.name);
        if (found != nullptr) return *found;
        if (is_function(node.name)) return Value::binary({});  // is defined, and cannot be printed
        const bool is_known =
            !node.name.ends_with("_token") || node.name == "bos_token" || node.name == "eos_token";
        CARAVAN_CHECK(is_known, InputError, "the variable \"{}\" is not supported", node.name);
        return undefined();
      }
      case Kind::kList: {
        Value list = Value::array();
        for (const NodePtr& child : node.children) list.push_back(evaluate(*child));
        return list;
      }
      case Kind::kMap: {
        Value map = Value::object();
        for (std::size_t i = 0; i < node.children.size(); i += 2) {
          const Value key = evaluate(*node.children[i]);
          CARAVAN_CHECK(key.is_string(), InputError, "keys of maps must be texts here");
          map[key.get<std::string>()] = evaluate(*node.children[i + 1]);
        }
        return map;
      }
      case Kind::kAttribute: return attribute_of(evaluate(*node.children[0]), node.name);
      case Kind::kItem: return item_of(evaluate(*node.children[0]), evaluate(*node.children[1]));
      case Kind::kSlice:
        return slice_of(evaluate(*node.children[0]), bound(node, 1), bound(node, 2),
                        bound(node, 3));
      case Kind::kCall: return call(node);
      case Kind::kFilter: {
        const Value value = evaluate(*node.children[0]);
        return filtered(node.name, value, arguments(node), named(node));
      }
      case Kind::kTest: return tested(node.name, evaluate(*node.children[0]));
      case Kind::kUnary: {
        const Value value = evaluate(*node.children[0]);
        if (node.name == "not") return !is_true(value);
        return combined("-", 0, value);
      }
      case Kind::kBinary: return binary(node);
      case Kind::kChoice: {
        if (is_true(evaluate(*node.children[1]))) return evaluate(*node.children[0]);
        return node.children[2] == nullptr ? undefined() : evaluate(*node.children[2]);
      }
      default: throw InternalError("a statement stands for an expression");
    }
  }

  Value bound(const Node& slice, std::size_t child) {
    return slice.children[child] == nullptr ? Value(nullptr) : evaluate(*slice.children[child]);
  }

  Value binary(const Node& node) {
    Value left = evaluate(*node.children[0]);
    if (node.name == "and") return is_true(left) ? evaluate(*node.children[1]) : left;
    if (node.name == "or") return is_true(left) ? left : evaluate(*node.children[1]);
    return combined(node.name, left, evaluate(*node.children[1]));
  }

  Arguments arguments(const Node& node) {
    Arguments values;
    for (std::size_t i = 1; i < node.children.size(); ++i) {
      values.push_back(evaluate(*node.children[i]));
    }
    return values;
  }

  NamedArguments named(const Node& node) {
    NamedArguments values;
    for (const auto& [name, value] : node.named) values.emplace_back(name, evaluate(*value));
    return values;
  }

  Value call(const Node& node) {
    const Node& what = *node.children[0];
    if (what.kind == Kind::kAttribute) {
      const Value object = evaluate(*what.children[0]);
      CARAVAN_CHECK(node.named.empty(), InputError,
                    "the method \"{}\" is not supported with {}=", what.name, node.named[0].first);
      return called(object, what.name, arguments(node));
    }
    CARAVAN_CHECK(what.kind == Kind::kVariable, InputError, "such a call is not supported");
    if (what.name == "raise_exception") throw Refused{};
    if (what.name == "strftime_now") {
      const Arguments form = arguments(node);
      CARAVAN_CHECK(form.size() == 1 && form[0] == "%d %b %Y", InputError,
                    "strftime_now is only supported with \"%d %b %Y\"");
      return now_;
    }
    if (what.name == "namespace") {
      CARAVAN_CHECK(node.children.size() == 1, InputError, "namespace() of a map is not supported");
      Value fields = Value::object();
      for (const auto& [name, value] : named(node)) fields[name] = value;
      return fields;
    }
    throw InputError(fmt::format("the function \"{}\" is not supported", what.name));
  }

  const std::string& now_;
  std::vector<std::map<std::string, Value>> scopes_;
  std::string output_;
  std::int64_t steps_ = 0;
  std::int64_t work_ = 0;
};

}  // namespace

Template::Template(std::string_view source) : body_(parse(read_tokens(source))) {}

Template::~Template() = default;

std::optional<std::string> Template::render(const Value& variables, const std::string& now) const {
  Run run(variables, now);
  try {
    run.execute(body_);
  } catch (const Refused&) {
    return std::nullopt;
  } catch (const Value::exception& fault) {
    throw InputError(fmt::format("a value of the template: {}", without_type(fault.what())));
  }
  return run.take_output();
}

}  // namespace caravan::text::jinja
