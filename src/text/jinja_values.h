#pragma once
// What templates can do with values: filters, tests, methods and operators, as in Python.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja_template.h"

namespace caravan::text::jinja {

/// The template cannot go on with this input: it raised, or used an undefined value as Python does
/// not let it.
struct Refused {};

using Arguments = std::vector<Value>;
using NamedArguments = std::vector<std::pair<std::string, Value>>;

Value undefined();
bool is_true(const Value& value);
/// As printed. @throws InputError for values whose Python form is not known here.
std::string printed(const Value& value);
/// @throws Refused for an undefined value; InputError for operators, filters, methods and kinds of
/// values that are not known here, also where Python would certainly raise.
Value combined(const std::string& op, const Value& left, const Value& right);
Value filtered(const std::string& name, const Value& value, const Arguments& arguments,
               const NamedArguments& named);
bool tested(const std::string& name, const Value& value);
Value called(const Value& object, const std::string& method, const Arguments& arguments);
/// object[index]; undefined where there is none. @throws InputError for a method.
Value item_of(const Value& object, const Value& index);
/// object.name, where methods come before entries.
Value attribute_of(const Value& object, const std::string& name);
/// Null bounds are those of the whole.
Value slice_of(const Value& object, const Value& begin, const Value& end, const Value& step);

}  // namespace caravan::text::jinja
