// SPDX-License-Identifier: Apache-2.0
//
// The lines that are logged while it lives, without time and level. Any thread.
#pragma once

#include <memory>
#include <string>

namespace sluice {

class CapturedLog {
 public:
  CapturedLog();
  ~CapturedLog();
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::string text() const;
  /// The lines since the last call of take().
  std::string take();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace sluice
