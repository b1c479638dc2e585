// SPDX-License-Identifier: Apache-2.0
//
// A cooperative thread for the model. It runs until it yields; the model then resumes it or restarts it from
// the beginning.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define SLUICE_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_FIBER_ASAN 1
#endif
#endif
#ifdef SLUICE_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace sluice::model {

class Fiber {
 public:
  Fiber() : stack_(kStackBytes) {}
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Restarts the fiber with `body`, which does not return. The previous body is abandoned where it yielded.
  void start(std::function<void()> body) {
    body_ = std::move(body);
#ifdef SLUICE_FIBER_ASAN
    __asan_unpoison_memory_region(stack_.data(), stack_.size());
#endif
    ::getcontext(&own_);
    own_.uc_stack.ss_sp = stack_.data();
    own_.uc_stack.ss_size = stack_.size();
    own_.uc_link = nullptr;
    ::makecontext(&own_, &enter, 0);
  }
  /// Runs the fiber until it yields.
  void resume() {
    running_ = this;
    void* fake = nullptr;
    start_switch(&fake, stack_.data(), stack_.size());
    ::swapcontext(&caller_, &own_);
    finish_switch(fake, nullptr, nullptr);
    running_ = nullptr;
  }
  /// Returns to the caller of resume(). No effect outside a fiber.
  static void yield() {
    Fiber* const self = running_;
    if (self == nullptr) return;
    void* fake = nullptr;
    start_switch(&fake, self->caller_stack_, self->caller_bytes_);
    ::swapcontext(&self->own_, &self->caller_);
    finish_switch(fake, &self->caller_stack_, &self->caller_bytes_);
  }

 private:
  static constexpr std::size_t kStackBytes = 256 * 1024;

  static void enter() {
    Fiber* const self = running_;
    finish_switch(nullptr, &self->caller_stack_, &self->caller_bytes_);
    self->body_();
  }
#ifdef SLUICE_FIBER_ASAN
  static void start_switch(void** fake, const void* stack, std::size_t bytes) {
    __sanitizer_start_switch_fiber(fake, stack, bytes);
  }
  static void finish_switch(void* fake, const void** stack, std::size_t* bytes) {
    __sanitizer_finish_switch_fiber(fake, stack, bytes);
  }
#else
  static void start_switch(void**, const void*, std::size_t) {}
  static void finish_switch(void*, const void**, std::size_t*) {}
#endif

  static inline Fiber* running_ = nullptr;
  std::vector<std::byte> stack_;
  std::function<void()> body_;
  ucontext_t own_{};
  ucontext_t caller_{};
  const void* caller_stack_ = nullptr;
  std::size_t caller_bytes_ = 0;
};

}  // namespace sluice::model
