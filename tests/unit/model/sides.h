// SPDX-License-Identifier: Apache-2.0
//
// Both planes reduced to their accesses to shared memory. Rings, tables, words, and the control plane's
// watch, book and outbox are the product's own; connections are plain structs. A killed plane is destroyed,
// and its successor has only the segment.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>

#include "controlplane/cm/connection_monitor.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/policy/admission.h"
#include "dataplane/segment/segment.h"

namespace sluice::model {

inline constexpr std::uint32_t kPlaces = 4;
inline constexpr std::uint32_t kMostConnections = 5;  ///< limit of admission, above the number of connection
                                                      ///< slots

using Random = std::mt19937;
inline bool one_in(Random& random, std::uint32_t n) {
  return random() % n == 0;
}

/// Desired state that the control plane has written for certain, by incarnation: it was not killed before the
/// write was complete.
struct Ghost {
  std::optional<segment::Grant> grant;
  bool ended = false;
  bool ending = false;  ///< ended, or killed while ending it
  std::optional<bool> established;
};

struct World {
  explicit World(segment::Layout& used, std::uint32_t seed) : layout(used), random(seed) {}
  segment::ReactorArea& area() { return layout.reactors[0]; }

  segment::Layout& layout;
  Random random;
  bool settling = false;  ///< no new commands or connections
  std::uint32_t next_cm_id = 1;
  std::map<std::uint32_t, Ghost> ghosts;
};

class ModelReactor {
 public:
  struct Connection {
    bool open = false;
    std::uint32_t incarnation = 0;
    std::uint32_t cm_id = 0;
    segment::Grant grant{.credits = 1, .client_class = 0};
    bool established = false;
    bool draining = false;
    std::optional<segment::Parameters> parameters{};
    HostName host{};
    segment::AppliedState followed{};
  };

  explicit ModelReactor(World& world) : world_(world), area_(world.area()) {}
  /// Starts the data plane.
  void start();
  /// Runs one control pass.
  void turn();
  const Connection& connection(std::uint32_t number) const { return connections_[number]; }
  bool idle() const { return !answer_; }

 private:
  void take_commands();
  bool send_answer();
  segment::Event execute(const segment::Command& command);
  void follow(std::uint32_t number);
  void publish(std::uint32_t number);
  void close(std::uint32_t number);

  World& world_;
  segment::ReactorArea& area_;
  std::array<Connection, kPlaces> connections_;
  std::optional<segment::Event> answer_;
  std::uint32_t next_ = 0;
};

class ModelControlPlane final : private cm::ConnectionMonitor::Listener {
 public:
  explicit ModelControlPlane(World& world);
  void take_over();
  void turn();

  const policy::Admission& admission() const { return admission_; }
  std::size_t held() const { return book_.held(); }
  const cm::ConnectionMonitor& watch() const { return watch_; }
  std::size_t waiting() const { return outbox_.waiting(); }
  /// Returns the incarnations of the connections that this control plane has recorded as established.
  std::set<std::uint32_t> made() const;
  std::size_t unmade() const;

 private:
  struct Known {
    bool made = false;
    std::uint32_t number = 0;
    std::uint32_t incarnation = 0;
  };
  void on_appeared(std::uint32_t, std::uint32_t number, const cm::SeenConnection& seen) override;
  void on_changed(std::uint32_t, std::uint32_t, const cm::SeenConnection&) override {}
  void on_gone(std::uint32_t, std::uint32_t, const cm::SeenConnection& seen) override;
  void on_missed(std::uint32_t, std::uint32_t, const cm::SeenConnection& expected) override;

  void on_event(const segment::Event& event);
  void on_answer(const segment::Event& event);
  void notice_data_plane();
  void admit_a_peer();
  void want_something();
  void end(std::uint32_t number, std::uint32_t incarnation);
  void forget(const cm::SeenConnection& seen);

  World& world_;
  segment::ReactorArea& area_;
  cm::Outbox outbox_;
  policy::Admission admission_;
  cm::AdmissionTable book_;
  cm::ConnectionMonitor watch_;
  segment::DesiredStateWriter wanted_;
  std::map<std::uint32_t, Known> known_;  ///< by cm_id
  std::uint32_t inherited_ = 0;
  std::uint32_t data_plane_ = 0;
  std::uint64_t now_ns_ = 1;
};

}  // namespace sluice::model
