// SPDX-License-Identifier: Apache-2.0
//
// Simulates a data plane that writes arbitrary bytes into its part of the segment. The readers of the control
// plane are connection management, policy, properties and everything that administrators are shown. They must
// not crash or read out of bounds, and count at most as many connections as there are slots.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <exception>

#include "controlplane/admin/json_rpc.h"
#include "controlplane/admin/views/connections.h"
#include "controlplane/admin/views/reactors.h"
#include "controlplane/admin/views/status.h"
#include "controlplane/admin/views/upstreams.h"
#include "controlplane/cm/connection_controller.h"
#include "controlplane/cm/outbox.h"
#include "controlplane/config/config.h"
#include "controlplane/events/journal.h"
#include "controlplane/policy/credit_controller.h"
#include "controlplane/properties/property_exchange.h"
#include "controlplane/tasks/arena.h"
#include "dataplane/base/invariant.h"
#include "dataplane/segment/segment.h"

using namespace sluice;

namespace {

constexpr std::uint32_t kPlaces = 4;
constexpr std::uint64_t kTurnNs = 300'000'000;

const config::Config& configuration() {
  static const config::Config made = config::parse(
      "[transport]\nmax_connections = 4\n[device]\ndriver = \"softroce\"\nethdev = \"x\"\n"
      "addresses = [\"192.0.2.1/24\"]\n",
      "fuzz");
  return made;
}

/// Consumes the bytes of one input from the front.
class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : at_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *at_++;
  }
  /// Copies as many bytes as the input has left, `bytes` at most. The rest of `to` is unchanged.
  void fill(void* to, std::size_t bytes) {
    const std::size_t count = std::min(bytes, left_);
    std::memcpy(to, at_, count);
    at_ += count;
    left_ -= count;
  }
  template <typename T>
  T value() {
    T made{};
    fill(&made, sizeof made);
    return made;
  }

 private:
  const std::uint8_t* at_;
  std::size_t left_;
};

template <typename Ring>
void put(Ring& ring, Script& script) {
  script.fill(&ring.slots[ring.tail % ring.slots.size()], sizeof ring.slots[0]);
  ++ring.tail;
}

void write_something(segment::DataPart& part, Script& script) {
  segment::ReactorData& reactor = part.reactors[0];
  const std::uint8_t what = script.byte();
  const std::uint32_t number = what / 16 % kPlaces;
  switch (what % 16) {
    case 0:
      return put(reactor.events, script);
    case 1:
      return put(reactor.punt_up, script);
    case 2:
      return put(reactor.properties_up, script);
    case 3:
      return reactor.connections[number].write(script.value<segment::ConnectionInfo>());
    case 4:
      return script.fill(static_cast<void*>(&reactor.connections[number]),
                         sizeof reactor.connections[number]);
    case 5:
      return script.fill(static_cast<void*>(&reactor.use[number]), sizeof reactor.use[number]);
    case 6:
      return script.fill(static_cast<void*>(&reactor.calls.info[number]), sizeof reactor.calls.info[number]);
    case 7:
      return script.fill(static_cast<void*>(&reactor.calls.procedures), 4);
    case 8:
      return part.exports[number].write(script.value<segment::ExportInfo>());
    case 9:
      return part.memory.write(script.value<segment::MemoryTable>());
    case 10:
      return script.fill(static_cast<void*>(&part.head.plane), sizeof part.head.plane);
    case 11:
      return reactor.info.write(script.value<segment::ReactorInfo>());
    case 12:
      return script.fill(static_cast<void*>(&reactor.events.tail), 4);
    case 13:
      return script.fill(static_cast<void*>(&reactor.commands.head), 4);
    case 14:
      return script.fill(static_cast<void*>(reactor.upstreams.data()), sizeof reactor.upstreams[0]);
    default: {
      reactor.incarnations = script.value<std::uint32_t>();
      auto names = std::make_unique<segment::CounterNames>();
      script.fill(static_cast<void*>(&names->names[0]), 256);
      return part.counter_names.write(*names);
    }
  }
}

void show_everything(segment::Layout& layout, const policy::CreditController& credits, std::uint64_t now_ns) {
  const config::Config& config = configuration();
  const segment::ConfigBlock& block = config.block;
  admin::Pace pace;
  admin::CreditSums sums(layout, config, credits, now_ns);
  sums.add(pace);
  const Json shown[] = {admin::connections(layout, config, {}, 0, admin::kMaxPageRows, pace).rows,
                        admin::connection_properties(layout, block, 0, admin::kMaxPageRows, pace).rows,
                        sums.result(),
                        admin::exports(layout),
                        admin::export_statistics(layout, ""),
                        admin::memory(layout, block),
                        admin::reactors(layout, block),
                        admin::counters(layout, block),
                        admin::upstreams(layout, block),
                        admin::reverse_counters(layout, block)};
  for (const Json& view : shown) admin::to_line(view);
  try {
    admin::to_line(admin::show_connection(layout, config, 0, 0));
  } catch (const std::exception&) {  // the entry does not exist
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  count_invariants() = true;
  const config::Config& config = configuration();
  static const auto segment = segment::Segment::in_memory();
  // The parts are zeroed in place, because mapping the segment again for each input would take most of the
  // time.
  ::madvise(static_cast<void*>(&segment->control_part()), sizeof(segment::ControlPart), MADV_DONTNEED);
  ::madvise(static_cast<void*>(&segment->data_part()), sizeof(segment::DataPart), MADV_DONTNEED);
  segment::Layout& layout = segment->layout();
  layout.config.write(config.block);
  cm::Outbox outbox(layout);
  policy::CreditController credits(layout, config.credit_settings());
  events::Journal journal([](const events::Event&) {});
  static tasks::Arena tasks({});
  cm::ConnectionController keeper(layout, config, credits, outbox, journal, tasks);
  properties::PropertyExchange exchange(layout, config, outbox, nullptr, journal);
  Script script(data, size);
  for (std::uint32_t i = script.byte() % 8; i > 0; --i) write_something(segment->data_part(), script);
  keeper.take_over();
  std::uint64_t now_ns = kTurnNs;
  for (; !script.empty(); now_ns += kTurnNs) {
    write_something(segment->data_part(), script);
    segment->find_counters();
    keeper.poll(now_ns);
    exchange.poll(now_ns);
    credits.poll(now_ns);
    if (keeper.connections() > 2 * kPlaces) std::abort();
  }
  show_everything(layout, credits, now_ns);
  return 0;
}
