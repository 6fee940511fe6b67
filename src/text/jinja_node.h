#pragma once
// The syntax tree of a template.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja_template.h"

namespace caravan::text::jinja {

struct Node {
  enum class Kind {
    // Expressions. `name` is the operator, attribute, filter, test or variable.
    kLiteral,
    kVariable,
    kList,       // children
    kMap,        // key, value, key, value ...
    kAttribute,  // child 0 . name
    kItem,       // child 0 [child 1]
    kSlice,      // child 0 [child 1 : child 2 : child 3], each of the last three may be null
    kCall,       // child 0 (children 1 ..., arguments by name)
    kFilter,     // child 0 | name(children 1 ...)
    kTest,       // child 0 is name
    kUnary,      // not, -
    kBinary,     // and, or, in, ==, +, ...
    kChoice,     // child 0 if child 1 else child 2 (may be null)
    // Statements.
    kText,   // name
    kPrint,  // child 0
    kSet,    // variable `name`, or attribute of it (`attribute`), = child 0
    kIf,     // branches: conditions are children, null for else
    kFor,    // names in child 0, if child 1 (may be null)
    kGroup,  // a body that only stands in another statement
  };

  explicit Node(Kind the_kind, std::string the_name = {})
      : kind(the_kind), name(std::move(the_name)) {}

  Kind kind;
  std::string name;
  std::string attribute;
  Value literal;
  int height = 1;  // of an expression's tree
  std::vector<std::unique_ptr<Node>> children;
  std::vector<std::pair<std::string, std::unique_ptr<Node>>> named;  // arguments
  std::vector<std::string> names;                                    // loop variables
  std::vector<std::vector<std::unique_ptr<Node>>> bodies;  // kIf: by branch; kFor: else too
};

using NodePtr = std::unique_ptr<Node>;
using Body = std::vector<NodePtr>;

/// One token inside a tag, or the text between tags.
struct Token {
  enum class Kind { kText, kOpenPrint, kOpenBlock, kClose, kName, kNumber, kString, kSymbol, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;
};

/// @throws InputError for an unfinished tag or string.
std::vector<Token> read_tokens(std::string_view source);

/// @throws InputError for what is not in the subset.
Body parse(const std::vector<Token>& tokens);

}  // namespace caravan::text::jinja
