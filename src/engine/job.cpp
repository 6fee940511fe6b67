#include "job.h"

#include <utility>

namespace caravan::engine {

Job::Job(Request request, std::int64_t serial, const text::Tokenizer& tokenizer,
         std::int64_t image_token_id)
    : request_(std::move(request)), serial_(serial) {
  if (!request_.images.empty()) images_ = ImageVisibility(request_.prompt, image_token_id);
  const SamplingParams& params = request_.sampling;
  const text::DecodedText start = text::text_behind(request_.prompt, tokenizer);
  for (std::int64_t choice = 0; choice < params.num_choices; ++choice) {
    choices_.push_back(std::make_unique<ChoiceState>(
        ChoiceState{{}, ChoiceText(tokenizer, params, start), {}, {}}));
    Sequence& sequence = choices_.back()->sequence;
    sequence.request = &request_;
    sequence.serial = serial;
    sequence.choice = choice;
    if (images_.num_images() > 0) sequence.images = &images_;
  }
  if (params.prompt_logprobs) {
    prompt_logprobs_.push_back({request_.prompt.front(), 0, {}});
    sequence(0).scored = 1;
  }
  if (params.max_tokens > 0) {
    num_open_ = params.num_choices;
    sequence(0).pending_forks = params.num_choices - 1;
  } else {
    // One pass over the prompt answers all choices, or nothing is to be computed at all.
    num_open_ = params.prompt_logprobs && sequence(0).remaining() > 0 ? 1 : 0;
  }
}

std::vector<Sequence*> Job::forks() {
  std::vector<Sequence*> result;
  for (std::int64_t choice = 1; choice < num_choices(); ++choice) {
    result.push_back(&sequence(choice));
  }
  return result;
}

void Job::add_prompt_logprob(TokenLogprob logprob) {
  prompt_logprobs_.push_back(std::move(logprob));
  Sequence& scorer = sequence(0);
  ++scorer.scored;
  if (!scorer.samples() && scorer.scored == scorer.prompt_size()) num_open_ = 0;
}

bool Job::add_token(std::int64_t choice, std::int32_t id, std::optional<TokenLogprob> logprob) {
  ChoiceState& current = state(choice);
  current.sequence.generated.push_back(id);
  if (logprob) current.logprobs.push_back(std::move(*logprob));
  auto ending = current.text.push(id);
  if (!ending) return false;
  current.ending = std::move(*ending);
  --num_open_;
  return true;
}

Answer Job::take_answer() {
  Answer answer;
  answer.id = request_.id;
  if (error_) {
    answer.error = std::move(error_);
    return answer;
  }
  for (auto& current : choices_) {
    Choice choice;
    choice.token_ids = std::move(current->sequence.generated);
    choice.text = current->text.finish();
    choice.finish_reason = current->ending.reason;
    choice.stop_reason = std::move(current->ending.stop);
    choice.logprobs = std::move(current->logprobs);
    answer.choices.push_back(std::move(choice));
  }
  answer.prompt_logprobs = std::move(prompt_logprobs_);
  return answer;
}

}  // namespace caravan::engine
