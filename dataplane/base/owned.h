// SPDX-License-Identifier: Apache-2.0
//
// Owner of one object, or empty. For headers that are included everywhere: <memory>, which std::unique_ptr
// needs, is among the largest headers of the standard library. Converts from and to std::unique_ptr. Arrays
// are not supported.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace sluice {

template <typename T>
class Owned {
 public:
  Owned() = default;
  Owned(std::nullptr_t) noexcept {}
  explicit Owned(T* object) noexcept : object_(object) {}
  Owned(Owned&& other) noexcept : object_(other.release()) {}
  /// Takes the object of a std::unique_ptr or an Owned of T, or of a class derived from T.
  template <typename Owner>
  requires(!std::is_reference_v<Owner> && !std::is_same_v<Owner, Owned> &&
           std::is_convertible_v<decltype(std::declval<Owner&>().release()), T*>)
      // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): not for an Owned of T, nor for a reference
      Owned(Owner&& other)
  noexcept : object_(other.release()) {}
  /// Transfers the object to a std::unique_ptr of T, or of a base class of T.
  template <typename Owner>
  requires std::is_convertible_v<T*, typename Owner::pointer> && requires { typename Owner::deleter_type; }
  operator Owner() && noexcept { return Owner(release()); }
  Owned& operator=(Owned&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~Owned() { delete object_; }

  T* get() const noexcept { return object_; }
  T* operator->() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  bool operator==(std::nullptr_t) const noexcept { return object_ == nullptr; }

  T* release() noexcept { return std::exchange(object_, nullptr); }
  void reset(T* object = nullptr) noexcept { delete std::exchange(object_, object); }

 private:
  T* object_ = nullptr;
};

template <typename T, typename... Arguments>
Owned<T> make_owned(Arguments&&... arguments) {
  return Owned<T>(new T(std::forward<Arguments>(arguments)...));
}

}  // namespace sluice
