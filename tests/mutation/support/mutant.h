// SPDX-License-Identifier: Apache-2.0
//
// The switch of a tree that holds many mutants: SLUICE_MUTANT=N enables mutant N only. Each changed place
// records that it was reached, so that a mutant runs only against the tests that reach it.
#pragma once

#include <sys/mman.h>

#include <cstdlib>

namespace sluice::mutation {

inline constexpr int kMaxMutants = 1 << 16;

inline int number_from_environment() {
  const char* text = std::getenv("SLUICE_MUTANT");
  return text == nullptr ? 0 : std::atoi(text);
}

/// Maps a table that child processes share: the places that they reach count for the test that started them.
inline unsigned char* make_table() {
  void* memory =
      ::mmap(nullptr, kMaxMutants, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<unsigned char*>(memory);
}

inline const int active = number_from_environment();
inline unsigned char* const reached = make_table();

inline bool note(int id) noexcept {
  if (reached != nullptr) __atomic_store_n(&reached[id], 1, __ATOMIC_RELAXED);
  return active == id;
}

/// Whether mutant `id` runs. Expressions that the compiler evaluates are never mutants.
constexpr bool on(int id) noexcept {
  return __builtin_is_constant_evaluated() ? false : note(id);
}

/// Returns a bound, moved by `step` in mutant `id`. Not constexpr: a bound that has to be a constant fails to
/// compile, instead of being a mutant that never runs.
template <typename T>
inline T moved(int id, int step, T value) noexcept {
  return note(id) ? static_cast<T>(value + static_cast<T>(step)) : value;
}

/// Variant of moved() for functions that are constexpr themselves.
template <typename T>
constexpr T moved_in_constexpr(int id, int step, T value) noexcept {
  return on(id) ? static_cast<T>(value + static_cast<T>(step)) : value;
}

}  // namespace sluice::mutation
