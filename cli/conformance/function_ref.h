// SPDX-License-Identifier: Apache-2.0
//
// Reference to a callable, for parameters that are invoked only during the function call. std::function would
// copy the callable, and <functional> is one of the largest headers of the standard library. The callable
// must outlive the reference. Any thread.
#pragma once

#include <type_traits>
#include <utility>

namespace sluice::conformance {

template <typename Signature>
class FunctionRef;

template <typename Result, typename... Args>
class FunctionRef<Result(Args...)> {
 public:
  FunctionRef(Result (*function)(Args...)) noexcept
      : target_{.function = function}, call_([](Target target, Args... args) -> Result {
          return target.function(std::forward<Args>(args)...);
        }) {}
  template <typename Callable, typename = std::enable_if_t<std::is_class_v<Callable>>>
  FunctionRef(const Callable& callable) noexcept
      : target_{.object = &callable}, call_([](Target target, Args... args) -> Result {
          return (*static_cast<const Callable*>(target.object))(std::forward<Args>(args)...);
        }) {}
  FunctionRef(const FunctionRef&) = default;
  FunctionRef& operator=(const FunctionRef&) = default;

  Result operator()(Args... args) const { return call_(target_, std::forward<Args>(args)...); }

 private:
  union Target {
    const void* object;
    Result (*function)(Args...);
  };
  Target target_;
  Result (*call_)(Target, Args...);
};

}  // namespace sluice::conformance
