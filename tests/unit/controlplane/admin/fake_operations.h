// SPDX-License-Identifier: Apache-2.0
//
// A control plane that only records the operations that it receives. Connection 3 of reactor 0 and the export
// /a exist.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controlplane/admin/methods.h"

namespace sluice::admin {

class FakeOperations final : public Operations {
 public:
  void reload(Reloaded done) override {
    done({.changes = {.live = {"log_level"}, .restart_control = {}, .restart_both = {"transport.credits"}},
          .problem = defects});
  }
  void set_log_level(const std::string& level) override { log_level = level; }
  void set_export(const segment::ExportConfig& entry) override {
    if (full) throw config::ConfigError("There is no place.\n");
    exports.push_back(entry);
  }
  bool remove_export(const std::string& path) override { return path == "/a"; }
  void set_draining(bool draining) override { draining_ = draining; }
  bool draining() const override { return draining_; }
  void save_export(const segment::ExportConfig& entry, Saved done) override {
    saved.push_back(entry);
    waiting = std::move(done);
  }
  bool close_connection(std::uint32_t reactor, std::uint32_t connection) override {
    if (reactor != 0 || connection != 3) return false;
    ++closed;
    return true;
  }
  bool trace_connection(std::uint32_t reactor, std::uint32_t connection, bool on) override {
    if (reactor != 0 || connection != 3) return false;
    traced = on;
    return true;
  }

  std::string defects;
  std::string log_level;
  std::vector<segment::ExportConfig> exports;
  int closed = 0;
  std::optional<bool> traced;
  bool full = false;
  std::vector<segment::ExportConfig> saved;
  Saved waiting;

 private:
  bool draining_ = false;
};

}  // namespace sluice::admin
