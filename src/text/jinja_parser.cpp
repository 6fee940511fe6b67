// Precedence, from the weakest: if-else, or, and, not, comparisons, + -, ~, * / // %, filters and
// tests, unary minus, and what follows a value directly (attributes, items, calls).

#include <algorithm>
#include <array>

#include "caravan/core/error.h"
#include "jinja_node.h"

namespace caravan::text::jinja {
namespace {

constexpr int kMaxDepth = 100;
constexpr int kMaxHeight = 300;

using Kind = Node::Kind;

NodePtr make(Kind kind, std::string name = {}) {
  return std::make_unique<Node>(kind, std::move(name));
}

/// Long chains make high trees, which are walked by recursion.
NodePtr measured(NodePtr node) {
  for (const NodePtr& child : node->children) {
    if (child != nullptr) node->height = std::max(node->height, child->height + 1);
  }
  for (const auto& [name, child] : node->named) {
    node->height = std::max(node->height, child->height + 1);
  }
  CARAVAN_CHECK(node->height <= kMaxHeight, InputError, "an expression of more than {} steps",
                kMaxHeight);
  return node;
}

NodePtr binary(std::string name, NodePtr left, NodePtr right) {
  NodePtr node = make(Kind::kBinary, std::move(name));
  node->children.push_back(std::move(left));
  node->children.push_back(std::move(right));
  return measured(std::move(node));
}

NodePtr unary(std::string name, NodePtr operand) {
  NodePtr node = make(Kind::kUnary, std::move(name));
  node->children.push_back(std::move(operand));
  return measured(std::move(node));
}

NodePtr literal(Value value) {
  NodePtr node = make(Kind::kLiteral);
  node->literal = std::move(value);
  return node;
}

/// Counts nesting while it lives.
class Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) {
    CARAVAN_CHECK(++depth_ <= kMaxDepth, InputError, "nested more than {} deep", kMaxDepth);
  }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  int& depth_;
};

class Parser {
 public:
  explicit Parser(const std::vector<Token>& tokens) : tokens_(tokens) {}

  Body parse_all() {
    Body body = statements({});
    CARAVAN_CHECK(token().kind == Token::Kind::kEnd, InputError, "\"{}\" without a beginning",
                  tokens_[at_ + 1].text);
    return body;
  }

 private:
  const Token& token() const { return tokens_[at_]; }
  bool is_symbol(std::string_view text) const {
    return token().kind == Token::Kind::kSymbol && token().text == text;
  }
  bool is_word(std::string_view text) const {
    return token().kind == Token::Kind::kName && token().text == text;
  }
  bool take_symbol(std::string_view text) {
    if (!is_symbol(text)) return false;
    ++at_;
    return true;
  }
  bool take_word(std::string_view text) {
    if (!is_word(text)) return false;
    ++at_;
    return true;
  }
  void need_symbol(std::string_view text) {
    CARAVAN_CHECK(take_symbol(text), InputError, "expected \"{}\", found \"{}\"", text,
                  token().text);
  }
  void need_close() {
    CARAVAN_CHECK(token().kind == Token::Kind::kClose, InputError,
                  "expected the end of the tag, found \"{}\"", token().text);
    ++at_;
  }
  std::string need_name() {
    CARAVAN_CHECK(token().kind == Token::Kind::kName, InputError, "expected a name, found \"{}\"",
                  token().text);
    return tokens_[at_++].text;
  }

  /// Statements up to a block that begins with one of `ends`, which stays unread.
  Body statements(const std::vector<std::string_view>& ends) {
    const Depth depth(depth_);
    Body body;
    while (true) {
      switch (token().kind) {
        case Token::Kind::kText: body.push_back(make(Kind::kText, tokens_[at_++].text)); break;
        case Token::Kind::kOpenPrint:
          ++at_;
          body.push_back(make(Kind::kPrint));
          body.back()->children.push_back(expression());
          need_close();
          break;
        case Token::Kind::kOpenBlock: {
          const std::string_view word = tokens_[at_ + 1].text;
          if (std::find(ends.begin(), ends.end(), word) != ends.end()) return body;
          if (word.starts_with("end") || word == "else" || word == "elif") return body;
          ++at_;
          body.push_back(block());
          break;
        }
        default: return body;
      }
    }
  }

  void need_block(std::string_view word) {
    const bool found = token().kind == Token::Kind::kOpenBlock && tokens_[at_ + 1].text == word;
    CARAVAN_CHECK(found, InputError, "expected the block \"{}\"", word);
    at_ += 2;
  }

  NodePtr block() {
    const std::string word = need_name();
    if (word == "if") return if_block();
    if (word == "for") return for_block();
    if (word == "set") return set_block();
    if (word == "generation") {  // marks what is learnt in training
      need_close();
      NodePtr node = make(Kind::kGroup);
      node->bodies.push_back(statements({"endgeneration"}));
      need_block("endgeneration");
      need_close();
      return node;
    }
    throw InputError(fmt::format("the block \"{}\" is not supported", word));
  }

  NodePtr if_block() {
    NodePtr node = make(Kind::kIf);
    node->children.push_back(expression());
    need_close();
    node->bodies.push_back(statements({"elif", "else", "endif"}));
    while (tokens_[at_ + 1].text == "elif") {
      need_block("elif");
      node->children.push_back(expression());
      need_close();
      node->bodies.push_back(statements({"elif", "else", "endif"}));
    }
    if (tokens_[at_ + 1].text == "else") {
      need_block("else");
      need_close();
      node->children.push_back(nullptr);
      node->bodies.push_back(statements({"endif"}));
    }
    need_block("endif");
    need_close();
    return node;
  }

  NodePtr for_block() {
    NodePtr node = make(Kind::kFor);
    node->names.push_back(need_name());
    while (take_symbol(",")) node->names.push_back(need_name());
    CARAVAN_CHECK(take_word("in"), InputError, "expected \"in\", found \"{}\"", token().text);
    node->children.push_back(or_expression());
    node->children.push_back(take_word("if") ? expression() : nullptr);
    need_close();
    node->bodies.push_back(statements({"else", "endfor"}));
    node->bodies.emplace_back();
    if (tokens_[at_ + 1].text == "else") {
      need_block("else");
      need_close();
      node->bodies.back() = statements({"endfor"});
    }
    need_block("endfor");
    need_close();
    return node;
  }

  NodePtr set_block() {
    NodePtr node = make(Kind::kSet, need_name());
    if (take_symbol(".")) node->attribute = need_name();
    if (take_symbol("=")) {
      node->children.push_back(expression());
      need_close();
      return node;
    }
    need_close();
    node->bodies.push_back(statements({"endset"}));
    need_block("endset");
    need_close();
    return node;
  }

  NodePtr expression() {
    const Depth depth(depth_);
    NodePtr value = or_expression();
    while (take_word("if")) {
      NodePtr choice = make(Kind::kChoice);
      choice->children.push_back(std::move(value));
      choice->children.push_back(or_expression());
      choice->children.push_back(take_word("else") ? expression() : nullptr);
      value = measured(std::move(choice));
    }
    return value;
  }

  NodePtr or_expression() {
    NodePtr left = and_expression();
    while (take_word("or")) left = binary("or", std::move(left), and_expression());
    return left;
  }

  NodePtr and_expression() {
    NodePtr left = not_expression();
    while (take_word("and")) left = binary("and", std::move(left), not_expression());
    return left;
  }

  NodePtr not_expression() {
    const Depth depth(depth_);
    if (take_word("not")) return unary("not", not_expression());
    return comparison();
  }

  NodePtr comparison() {
    NodePtr left = sum();
    for (bool compared = false;; compared = true) {
      std::string name;
      for (const std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
        if (name.empty() && take_symbol(symbol)) name = symbol;
      }
      if (name.empty() && take_word("in")) name = "in";
      const bool not_in = name.empty() && is_word("not") && tokens_[at_ + 1].text == "in";
      if (name.empty() && !not_in) return left;
      CARAVAN_CHECK(!compared, InputError, "chains of comparisons are not supported");
      if (not_in) at_ += 2;
      left = binary(not_in ? "in" : name, std::move(left), sum());
      if (not_in) left = unary("not", std::move(left));
    }
  }

  NodePtr sum() {
    NodePtr left = joined();
    while (is_symbol("+") || is_symbol("-")) {
      const std::string name = tokens_[at_++].text;
      left = binary(name, std::move(left), joined());
    }
    return left;
  }

  NodePtr joined() {
    NodePtr left = product();
    while (take_symbol("~")) left = binary("~", std::move(left), product());
    return left;
  }

  NodePtr product() {
    NodePtr left = tested(signed_value());
    while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
      const std::string name = tokens_[at_++].text;
      left = binary(name, std::move(left), tested(signed_value()));
    }
    return left;
  }

  NodePtr signed_value() {
    const Depth depth(depth_);
    if (take_symbol("-")) return unary("-", signed_value());
    return followed(primary());
  }

  NodePtr primary() {
    const Token& first = token();
    ++at_;
    switch (first.kind) {
      case Token::Kind::kString: {
        std::string text = first.text;
        while (token().kind == Token::Kind::kString) text += tokens_[at_++].text;
        return literal(text);
      }
      case Token::Kind::kNumber: {
        Value number = Value::parse(first.text, nullptr, false);
        CARAVAN_CHECK(number.is_number(), InputError, "\"{}\" is no number", first.text);
        return literal(std::move(number));
      }
      case Token::Kind::kName: return named_value(first.text);
      case Token::Kind::kSymbol: break;
      default: throw InputError("an expression is missing");
    }
    if (first.text == "(") {
      NodePtr inner = expression();
      CARAVAN_CHECK(!is_symbol(","), InputError, "tuples are not supported");
      need_symbol(")");
      return inner;
    }
    if (first.text == "[") return list();
    if (first.text == "{") return map();
    throw InputError(fmt::format("expected a value, found \"{}\"", first.text));
  }

  static NodePtr named_value(const std::string& name) {
    if (name == "true" || name == "True") return literal(true);
    if (name == "false" || name == "False") return literal(false);
    if (name == "none" || name == "None") return literal(nullptr);
    return make(Kind::kVariable, name);
  }

  NodePtr list() {
    NodePtr node = make(Kind::kList);
    while (!take_symbol("]")) {
      node->children.push_back(expression());
      if (!is_symbol("]")) need_symbol(",");
    }
    return measured(std::move(node));
  }

  NodePtr map() {
    NodePtr node = make(Kind::kMap);
    while (!take_symbol("}")) {
      node->children.push_back(expression());
      need_symbol(":");
      node->children.push_back(expression());
      if (!is_symbol("}")) need_symbol(",");
    }
    return measured(std::move(node));
  }

  NodePtr followed(NodePtr value) {
    while (true) {
      NodePtr next;
      if (take_symbol(".")) {
        next = make(Kind::kAttribute, need_name());
        next->children.push_back(std::move(value));
      } else if (take_symbol("[")) {
        next = item(std::move(value));
      } else if (take_symbol("(")) {
        next = make(Kind::kCall);
        next->children.push_back(std::move(value));
        arguments(*next);
      } else {
        return value;
      }
      value = measured(std::move(next));
    }
  }

  /// Filters and tests; both take the sign of a value with it.
  NodePtr tested(NodePtr value) {
    while (true) {
      if (take_symbol("|")) {
        NodePtr filter = make(Kind::kFilter, need_name());
        filter->children.push_back(std::move(value));
        if (take_symbol("(")) arguments(*filter);
        value = measured(std::move(filter));
      } else if (take_word("is")) {
        const bool negated = take_word("not");
        NodePtr test = make(Kind::kTest, need_name());
        test->children.push_back(std::move(value));
        value = measured(std::move(test));
        if (negated) value = unary("not", std::move(value));
      } else {
        return value;
      }
    }
  }

  NodePtr item(NodePtr value) {
    std::array<NodePtr, 3> parts;
    std::size_t colons = 0;
    while (!is_symbol("]")) {
      if (take_symbol(":")) {
        CARAVAN_CHECK(++colons <= 2, InputError, "a slice with too many colons");
        continue;
      }
      CARAVAN_CHECK(parts[colons] == nullptr, InputError, "expected \"]\", found \"{}\"",
                    token().text);
      parts[colons] = expression();
    }
    need_symbol("]");
    CARAVAN_CHECK(colons > 0 || parts[0] != nullptr, InputError, "an index is missing");
    NodePtr node = make(colons == 0 ? Kind::kItem : Kind::kSlice);
    node->children.push_back(std::move(value));
    for (std::size_t i = 0; i < (colons == 0 ? 1 : parts.size()); ++i) {
      node->children.push_back(std::move(parts[i]));
    }
    return node;
  }

  void arguments(Node& call) {
    while (!take_symbol(")")) {
      const Token& next = tokens_[at_ + 1];
      const bool by_name = token().kind == Token::Kind::kName &&
                           next.kind == Token::Kind::kSymbol && next.text == "=";
      if (by_name) {
        std::string name = need_name();
        need_symbol("=");
        call.named.emplace_back(std::move(name), expression());
      } else {
        call.children.push_back(expression());
      }
      if (!is_symbol(")")) need_symbol(",");
    }
  }

  const std::vector<Token>& tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Body parse(const std::vector<Token>& tokens) { return Parser(tokens).parse_all(); }

}  // namespace caravan::text::jinja
