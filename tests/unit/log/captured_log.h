// SPDX-License-Identifier: Apache-2.0
//
// Captures the lines that are logged while the object exists, without time and level. Any thread.
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
  /// Returns the lines since the last call of take().
  std::string take();

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace sluice
