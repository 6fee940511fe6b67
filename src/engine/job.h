#pragma once
// A request inside the engine: its choices while they run, and the answer they add up to.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "caravan/engine/choice_text.h"
#include "caravan/engine/request.h"
#include "caravan/engine/sequence.h"
#include "caravan/text/tokenizer.h"

namespace caravan::engine {

class Job {
 public:
  /// @param image_token_id  of the model; any other number for one that reads text alone
  Job(Request request, std::int64_t serial, const text::Tokenizer& tokenizer,
      std::int64_t image_token_id);
  Job(const Job&) = delete;  // sequences point to the request
  Job& operator=(const Job&) = delete;

  const Request& request() const { return request_; }
  std::int64_t serial() const { return serial_; }

  std::int64_t num_choices() const { return std::ssize(choices_); }
  Sequence& sequence(std::int64_t choice) { return state(choice).sequence; }
  /// Sequences of all choices but the first.
  std::vector<Sequence*> forks();

  /// Log-probability of the next prompt token.
  void add_prompt_logprob(TokenLogprob logprob);
  /// A generated token, with its log-probability if asked for. True if its choice ends with it.
  bool add_token(std::int64_t choice, std::int32_t id, std::optional<TokenLogprob> logprob);
  /// Gives the request up; `error` becomes its answer.
  void fail(std::string error) { error_ = std::move(error); }

  bool failed() const { return error_.has_value(); }
  bool complete() const { return failed() || num_open_ == 0; }
  /// Once, when complete.
  Answer take_answer();

 private:
  struct ChoiceState {
    Sequence sequence;
    ChoiceText text;
    Ending ending;
    std::vector<TokenLogprob> logprobs;
  };
  ChoiceState& state(std::int64_t choice) { return *choices_[static_cast<std::size_t>(choice)]; }

  Request request_;
  std::int64_t serial_;
  ImageVisibility images_;
  std::vector<std::unique_ptr<ChoiceState>> choices_;  // sequences must not move
  std::vector<TokenLogprob> prompt_logprobs_;
  std::int64_t num_open_ = 0;
  std::optional<std::string> error_;
};

}  // namespace caravan::engine
