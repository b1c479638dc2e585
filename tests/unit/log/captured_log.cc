// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/log/captured_log.h"

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <sstream>
#include <utility>

namespace sluice {

struct CapturedLog::State {
  std::ostringstream lines{};
  std::shared_ptr<spdlog::logger> usual = spdlog::default_logger();
};

CapturedLog::CapturedLog() : state_(std::make_unique<State>()) {
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(state_->lines)));
  spdlog::default_logger()->set_pattern("%v");
}

CapturedLog::~CapturedLog() {
  spdlog::set_default_logger(state_->usual);
}

std::string CapturedLog::text() const {
  return state_->lines.str();
}

std::string CapturedLog::take() {
  return std::exchange(state_->lines, std::ostringstream()).str();
}

}  // namespace sluice
