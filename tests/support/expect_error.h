#pragma once
// Checks that a call throws one type of error with given words in its message.

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace caravan::test {

template <typename ErrorType, typename Call>
void expect_error(Call&& call, const std::string& words) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown, expected a message with \"" << words << "\"";
  } catch (const ErrorType& error) {
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos)
        << "got \"" << error.what() << "\", expected it to contain \"" << words << "\"";
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another type of error: " << error.what() << ", expected one with \"" << words
                  << "\"";
  }
}

}  // namespace caravan::test
