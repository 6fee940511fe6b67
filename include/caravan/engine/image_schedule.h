#pragma once
// Which running sequences hold images, and which image is encoded next.
//
// A sequence holds the images that its next rows see, group by group: a group is taken as a whole,
// one group ahead of the rows where blocks are free, and given back when the rows are past it.
// Sequences are served in order. One whose next row cannot go on without a group takes blocks from
// the youngest sequences behind it: those keep their place and their text, and wait until they get
// their images again.
//
// Nothing waits for ever: the oldest sequence never gives anything up, all others behind it can be
// made to, and any one group fits the pool, so it gets its group; the encoder finishes the image
// that it has begun and then takes the oldest one's; so the oldest sequence ends, and the next is
// the oldest. Plain logic, as scheduler.h.

#include <cstdint>
#include <span>

#include "caravan/core/partition.h"
#include "caravan/engine/image_store.h"
#include "caravan/engine/sequence.h"
#include "caravan/model/step_plan.h"

namespace caravan::engine {

class ImageSchedule {
 public:
  explicit ImageSchedule(const ImageStoreLimits& limits) : store_(limits) {}

  /// Before the first row of a step is planned: gives back images that nobody will see again, and
  /// takes those that are needed. `running`: oldest first.
  void begin_step(std::span<Sequence* const> running);
  /// Adds work on images, those of the oldest sequences first, that costs at most as much as
  /// `max_rows` rows of text; one unit of work whatever it costs if the plan has none yet. Returns
  /// its cost in rows.
  double add_work(std::span<Sequence* const> running, double max_rows, model::StepPlan& plan);

  /// Takes the first images that a sequence needs that is to run behind all others, from position
  /// `begin` on; false if they are not to be had now. With `running` empty they always are.
  [[nodiscard]] bool admit(Sequence& sequence, std::int64_t begin,
                           std::span<Sequence* const> running);
  /// A fork starts where its parent is.
  void share(const Sequence& parent, Sequence& child);
  /// The sequence ends or starts again.
  void release(Sequence& sequence);

  /// End of the positions of a running sequence whose images can all be seen in this step.
  std::int64_t computable_end(const Sequence& sequence) const;
  /// Says in the plan which images the rows of `positions`, the first being row `row`, see.
  void add_rows(const Sequence& sequence, Range positions, std::int32_t row,
                model::StepPlan& plan) const;

  const ImageStore& store() const { return store_; }
  /// How often a sequence lost its images to an older one.
  std::int64_t num_put_backs() const { return num_put_backs_; }

 private:
  void release_passed(Sequence& sequence);
  void release_until(Sequence& sequence, std::int64_t image);
  bool take_needed(std::span<Sequence* const> running, std::size_t index);
  bool could_fit(std::span<Sequence* const> older, std::span<const PromptImage> images) const;
  bool take_next(Sequence& sequence);

  ImageStore store_;
  bool somebody_waits_ = false;  // for images, in this step
  std::int64_t num_put_backs_ = 0;
};

}  // namespace caravan::engine
