// SPDX-License-Identifier: Apache-2.0
//
// Owner of a callable, or empty. For headers that many sources include: <functional>, which std::function
// needs, is among the largest headers of the standard library. Construction and copying allocate, so neither
// is for the message path. Pointers to members are not supported. As with std::function, a call may modify
// what the callable has captured.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "dataplane/base/invariant.h"

namespace sluice {

template <typename Signature>
class Function;

template <typename Result, typename... Args>
class Function<Result(Args...)> {
 public:
  Function() = default;
  Function(std::nullptr_t) noexcept {}
  /// Owns a copy of `callable`; empty if that is a null pointer or an empty function.
  template <typename Callable>
  requires(!std::is_same_v<std::remove_cvref_t<Callable>, Function> &&
           std::is_invocable_r_v<Result, std::decay_t<Callable>&, Args...>)
      // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): not for a Function of this signature
      Function(Callable&& callable) {
    using Kept = std::decay_t<Callable>;
    if constexpr (std::is_constructible_v<Kept, std::nullptr_t> &&
                  !std::is_function_v<std::remove_reference_t<Callable>>)
      if (callable == nullptr) return;
    target_ = new Target<Kept>(std::in_place, std::forward<Callable>(callable));
  }
  Function(const Function& other) : target_(other.target_ != nullptr ? other.target_->copy() : nullptr) {}
  Function(Function&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
  Function& operator=(Function other) noexcept {
    std::swap(target_, other.target_);
    return *this;
  }
  ~Function() { delete target_; }

  explicit operator bool() const noexcept { return target_ != nullptr; }
  bool operator==(std::nullptr_t) const noexcept { return target_ == nullptr; }

  /// Calls the callable. Requires a Function that is not empty.
  Result operator()(Args... args) const {
    SLUICE_INVARIANT_DEBUG(target_ != nullptr, table_index);
    return target_->call(std::forward<Args>(args)...);
  }

 private:
  struct AnyTarget {
    virtual ~AnyTarget() = default;
    virtual AnyTarget* copy() const = 0;
    virtual Result call(Args... args) = 0;
  };
  template <typename Callable>
  struct Target final : AnyTarget {
    template <typename From>
    Target(std::in_place_t, From&& from) : callable(std::forward<From>(from)) {}
    AnyTarget* copy() const override { return new Target(std::in_place, callable); }
    Result call(Args... args) override {
      if constexpr (std::is_void_v<Result>)
        callable(std::forward<Args>(args)...);
      else
        return callable(std::forward<Args>(args)...);
    }
    Callable callable;
  };

  AnyTarget* target_ = nullptr;
};

}  // namespace sluice
