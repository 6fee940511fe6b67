#pragma once
// Move-only owner of a C library handle. Traits name the handle type, its null value and how to
// release it, so that two kinds of handle with the same C type (HDF5 files and datasets) are
// different C++ types.

#include <utility>

namespace caravan {

/// Traits: `using Handle = ...; static Handle null() noexcept; static void release(Handle)
/// noexcept;`
template <typename Traits>
class UniqueHandle {
 public:
  using Handle = typename Traits::Handle;

  UniqueHandle() noexcept : handle_(Traits::null()) {}
  explicit UniqueHandle(Handle handle) noexcept : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept
      : handle_(std::exchange(other.handle_, Traits::null())) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, Traits::null());
    }
    return *this;
  }
  UniqueHandle(const UniqueHandle&) = delete;
  UniqueHandle& operator=(const UniqueHandle&) = delete;
  ~UniqueHandle() { reset(); }

  /// Borrowed for the length of a call.
  Handle get() const noexcept { return handle_; }
  explicit operator bool() const noexcept { return handle_ != Traits::null(); }
  /// Gives up ownership; the caller releases (and can check the result of doing so).
  Handle release() noexcept { return std::exchange(handle_, Traits::null()); }
  void reset() noexcept {
    if (handle_ != Traits::null()) Traits::release(std::exchange(handle_, Traits::null()));
  }

 private:
  Handle handle_;
};

}  // namespace caravan
