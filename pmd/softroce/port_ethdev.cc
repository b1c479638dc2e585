// SPDX-License-Identifier: Apache-2.0
// Methods of EthernetPort that set up its ethdev, follow its link, close it when its device was removed, and
// open it again.
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_devargs.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "dataplane/base/invariant.h"
#include "dataplane/base/setup_error.h"
#include "dataplane/base/small_algorithms.h"
#include "dataplane/base/virtual_ethdev.h"
#include "pmd/softroce/frame.h"
#include "pmd/softroce/kernel_addresses.h"
#include "pmd/softroce/port.h"

namespace sluice::rdma::softroce {
namespace {

constexpr std::uint16_t kDescriptors = 1024;
/// Interval between two attempts to open an ethdev whose device exists but cannot be used.
constexpr std::chrono::seconds kReopenInterval{1};
/// Interval at which the kernel's addresses are compared with the port's.
constexpr std::chrono::seconds kInspectionInterval{1};

SetupError port_error(const PortConfig& config, const char* what, int error) {
  const char* const advice = error == EPERM ? "A kernel interface requires CAP_NET_RAW and CAP_NET_ADMIN."
                                            : "Check the ethdev in [device] of the configuration.";
  return SetupError("softroce port " + config.name + " cannot " + what + " (" + rte_strerror(error) + "). " +
                    advice);
}

/// Returns the arguments that the ethdev was created with, or an empty string if it was created without
/// devargs.
std::string_view arguments_of(const rte_eth_dev_info& info) noexcept {
  const rte_devargs* const given = info.device != nullptr ? rte_dev_devargs(info.device) : nullptr;
  return given != nullptr && given->args != nullptr ? given->args : "";
}

std::string_view bus_of(const rte_eth_dev_info& info) noexcept {
  return info.device != nullptr ? rte_bus_name(rte_dev_bus(info.device)) : "";
}

}  // namespace

void EthernetPort::configure() {
  const rte_eth_dev_info info = ethdev_info();
  if (std::string_view(info.driver_name) == "net_memif") guard_ = make_owned<InterruptGuard>(config_.lanes);
  const int socket = rte_eth_dev_socket_id(config_.ethdev);
  numa_node_ = socket < 0 ? 0 : socket;
  frame_bytes_ =
      larger_of<std::uint32_t>(config_.link_mtu + kEthernetBytes + kVlanBytes, config_.frame_buffer_bytes);
  on_card_ = is_card(bus_of(info));
  device_ = {.bus = std::string(bus_of(info)),
             .name = info.device != nullptr ? rte_dev_name(info.device) : "",
             .driver = info.driver_name,
             .arguments = std::string(arguments_of(info))};
  watch_interface(std::string(kernel_interface(device_.driver, device_.arguments)));
  const auto queues = bounded<std::uint32_t>(
      config_.hardware_queues, 1,
      smaller_of<std::uint32_t>(config_.lanes, smaller_of(info.max_rx_queues, info.max_tx_queues)));
  std::uint16_t rx = kDescriptors;
  std::uint16_t tx = kDescriptors;
  rte_eth_dev_adjust_nb_rx_tx_desc(config_.ethdev, &rx, &tx);
  shape_ = {.lanes = config_.lanes, .queues = queues, .receive_descriptors = rx, .transmit_descriptors = tx};
  for (std::uint32_t queue = 0; queue < queues; ++queue) make_pool(queue);
  start_ethdev(info);
  look_for_obstacles(info);
  link_.set_mac(address_of_ethdev());
  link_.set_mtu(watch_ ? bounded_mtu(watch_->state()) : config_.link_mtu);
  if (watch_ && !watch_->state().running) link_.change_condition(Condition::PortDown);
  link_.set_kernel_serves(kernel_has_any(config_.addresses));
  publish_changes();
}

rte_eth_dev_info EthernetPort::ethdev_info() const {
  rte_eth_dev_info info;
  if (const int error = rte_eth_dev_info_get(config_.ethdev, &info); error != 0)
    throw port_error(config_, "query the ethdev", -error);
  return info;
}

void EthernetPort::make_pool(std::uint32_t queue) {
  static_cast<void>(SLUICE_INVARIANT(queue < kMaxLanes && pools_[queue] == nullptr, pool_balance));
  const std::string name = config_.name + "-rx" + std::to_string(queue);
  pools_[queue] =
      rte_pktmbuf_pool_create(name.c_str(), receive_buffers(shape_), kReceiveCache, 0,
                              static_cast<std::uint16_t>(RTE_PKTMBUF_HEADROOM + frame_bytes_), numa_node_);
  if (pools_[queue] == nullptr)
    throw SetupError("softroce port " + config_.name + " cannot create receive buffers (" +
                     rte_strerror(rte_errno) + "). Give DPDK more memory (dpdk_memory_mib in [device]).");
}

/// Configures and starts the ethdev with the queues and pools of this port. Throws SetupError.
void EthernetPort::start_ethdev(const rte_eth_dev_info& info) {
  static_cast<void>(SLUICE_INVARIANT(shape_.queues >= 1 && shape_.queues <= config_.lanes, table_index));
  if (shape_.queues > smaller_of(info.max_rx_queues, info.max_tx_queues))
    throw SetupError("The ethdev has fewer queues than before. Restart the data plane.");
  rte_eth_conf conf{};
  if (shape_.queues > 1) {
    conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    conf.rx_adv_conf.rss_conf.rss_hf = (RTE_ETH_RSS_UDP | RTE_ETH_RSS_IP) & info.flow_type_rss_offloads;
  }
  if (on_card_) {  // a virtual ethdev has the MTU of the interface below it
    if (config_.link_mtu > info.max_mtu)
      throw SetupError("The network card of softroce supports packets of at most " +
                       std::to_string(info.max_mtu) + " bytes. Lower mtu in [device] to this value.");
    conf.rxmode.mtu = config_.link_mtu;
  }
  conf.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
  const auto queues = static_cast<std::uint16_t>(shape_.queues);
  if (const int error = rte_eth_dev_configure(config_.ethdev, queues, queues, &conf); error != 0)
    throw port_error(config_, "configure the ethdev", -error);
  for (std::uint16_t queue = 0; queue < queues; ++queue) {
    const auto socket_id = static_cast<unsigned>(numa_node_);
    const auto rx = static_cast<std::uint16_t>(shape_.receive_descriptors);
    const auto tx = static_cast<std::uint16_t>(shape_.transmit_descriptors);
    if (const int error =
            rte_eth_rx_queue_setup(config_.ethdev, queue, rx, socket_id, nullptr, pools_[queue]);
        error != 0)
      throw port_error(config_, "set up a receive queue", -error);
    if (const int error = set_up_transmit_queue(queue, tx, info); error != 0)
      throw port_error(config_, "set up a transmit queue", -error);
  }
  events_.subscribe(config_.ethdev);
  if (guard_) guard_->hold();
  const int error = rte_eth_dev_start(config_.ethdev);
  if (guard_) guard_->release();
  if (error != 0) throw port_error(config_, "start the ethdev", -error);
  if (queues > 1) flow_rules_.make(config_, queues);
  rte_eth_allmulticast_enable(
      config_.ethdev);  // needed for neighbour solicitations; may fail, because some ethdevs do not need it
}

void EthernetPort::stop_ethdev() noexcept {
  events_.unsubscribe();
  flow_rules_.remove();
  rte_eth_dev_stop(config_.ethdev);
}

MacAddress EthernetPort::address_of_ethdev() const noexcept {
  rte_ether_addr address{};
  rte_eth_macaddr_get(config_.ethdev, &address);
  MacAddress mac;
  std::memcpy(mac.data(), address.addr_bytes, mac.size());
  return mac;
}

bool EthernetPort::wants_in_place(const rte_eth_dev_info& info) const noexcept {
  return config_.transmit_in_place && (config_.card_reads_payload || !is_card(bus_of(info)));
}

/// Sets up a transmit queue. A card that reads payload in place has to report the completion of each packet,
/// not of every 32nd packet.
int EthernetPort::set_up_transmit_queue(std::uint16_t queue, std::uint16_t descriptors,
                                        const rte_eth_dev_info& info) const {
  const auto socket = static_cast<unsigned>(numa_node_);
  if (is_card(bus_of(info)) && wants_in_place(info)) {
    rte_eth_txconf each = info.default_txconf;
    each.tx_rs_thresh = 1;
    if (rte_eth_tx_queue_setup(config_.ethdev, queue, descriptors, socket, &each) == 0) return 0;
  }
  return rte_eth_tx_queue_setup(config_.ethdev, queue, descriptors, socket, nullptr);
}

/// Determines whether payload can be sent in place. The ethdev must be started.
void EthernetPort::look_for_obstacles(const rte_eth_dev_info& info) {
  if (!wants_in_place(info)) return;
  const std::uint16_t most_segments = info.tx_desc_lim.nb_mtu_seg_max;  // zero if not reported
  const EthdevTraits traits{.driver = info.driver_name,
                            .arguments = arguments_of(info),
                            .bus = bus_of(info),
                            .sends_segments = (info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS) != 0 &&
                                              (most_segments == 0 || most_segments >= kSegmentsInPlace),
                            .frees_when_asked = rte_eth_tx_done_cleanup(config_.ethdev, 0, 0) >= 0,
                            .addresses_are_virtual = rte_eal_iova_mode() == RTE_IOVA_VA};
  packet_memory_ = softroce::packet_memory(traits);
  transmission_.in_place = packet_memory_ != PacketMemory::Unknown;
  transmission_.obstacle = why_copied(traits);
  if (packet_memory_ == PacketMemory::UntilFreed && !card_memory_.open(*info.device)) cannot_reach();
}

void EthernetPort::cannot_reach() {
  transmission_ = {.obstacle = "memory cannot be mapped for the card (" + card_memory_.error() + ")"};
}

bool EthernetPort::reach(std::span<std::byte> memory) {
  if (packet_memory_ != PacketMemory::UntilFreed) return true;
  if (!transmission_.in_place) return false;
  if (card_memory_.add(memory)) return true;
  cannot_reach();
  return false;
}

// --- The main thread while the lanes poll

bool EthernetPort::link_is_up() const noexcept {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(config_.ethdev, &link) != 0 || link.link_status == RTE_ETH_LINK_UP;
}

void EthernetPort::notice(LinkNotice::Level level, std::string text) {
  notices_.push_back({level, std::move(text)});
}

/// Starts to follow the carrier, the MTU and the MAC address of an interface. Has no effect without a name.
void EthernetPort::watch_interface(const std::string& interface) {
  if (interface.empty()) return;
  try {
    watch_ = make_owned<LinkMonitor>(interface);
  } catch (const SetupError& error) {
    return notice(LinkNotice::Level::Warning, std::string(error.what()) +
                                                  " Without it changes of the interface " + interface +
                                                  " are not detected.");
  }
  interface_mtu_ = watch_->state().mtu;
}

/// Returns the MTU of the port, which is the smaller one of the configured MTU and the interface's MTU.
std::uint16_t EthernetPort::bounded_mtu(const InterfaceState& interface) {
  if (interface.index == 0 || interface.mtu >= config_.link_mtu) return config_.link_mtu;
  notice(LinkNotice::Level::Warning,
         "The interface " + watch_->interface() + " has an MTU of " + std::to_string(interface.mtu) +
             ", which is less than mtu = " + std::to_string(config_.link_mtu) +
             " in [device]. Sluice uses the smaller value. For the configured one, run: ip link set " +
             watch_->interface() + " mtu " + std::to_string(config_.link_mtu));
  return static_cast<std::uint16_t>(interface.mtu);
}

void EthernetPort::handle_events() {
  switch (link_.facts().use) {
    case EthdevUse::Open:
      return observe();
    case EthdevUse::Leaving:
      if (link_.all_lanes_follow()) close_ethdev();
      return;
    case EthdevUse::Closed:
      return reopen();
  }
}

void EthernetPort::observe() {
  if (const auto now = std::chrono::steady_clock::now(); now >= next_inspection_) {
    next_inspection_ = now + kInspectionInterval;
    link_.set_kernel_serves(kernel_has_any(config_.addresses));
  }
  const EthdevEvents::Seen events = events_.take();
  if (events.removed) return leave("The network card " + device_.name + " was removed");
  if (events.reset) return leave("The network card " + device_.name + " was reset by its physical function");
  if (watch_) {
    const InterfaceNews news = watch_->poll();
    if (news.deleted) return leave("The interface " + watch_->interface() + " was deleted");
    follow_interface(news);
  } else {
    link_.change_condition(link_is_up() ? Condition::Up : Condition::PortDown);
    if (events.link)
      link_.announce_again();  // the link may have been down for less than the interval between two checks
  }
  publish_changes();
}

void EthernetPort::follow_interface(const InterfaceNews& news) {
  link_.change_condition(news.now.running ? Condition::Up : Condition::PortDown, news.losses);
  if (news.now.mac != link_.facts().mac)
    notice(LinkNotice::Level::Info,
           "The MAC address of the interface " + watch_->interface() +
               " has changed. Sluice sends from the new one and announces its addresses");
  link_.change_mac(news.now.mac);
  if (news.now.mtu == interface_mtu_) return;
  interface_mtu_ = news.now.mtu;
  notice(LinkNotice::Level::Info,
         "The MTU of the interface " + watch_->interface() + " is now " + std::to_string(interface_mtu_));
  link_.change_mtu(bounded_mtu(news.now));
}

/// Makes the lanes stop using the ethdev.
void EthernetPort::leave(const std::string& what) {
  notice(LinkNotice::Level::Warning, what + ". Sluice opens it again when it returns");
  link_.change_condition(Condition::Gone);
  link_.transition(EthdevUse::Leaving);
  publish_changes();
}

void EthernetPort::publish_changes() {
  static_cast<void>(SLUICE_INVARIANT(link_.facts().mtu <= config_.link_mtu, buffer_bounds));
  if (link_.facts() == published_) return;
  published_ = link_.facts();
  link_.publish();
}

/// Closes the ethdev after all lanes have stopped using it.
void EthernetPort::close_ethdev() {
  if (!SLUICE_INVARIANT(link_.all_lanes_follow(), ethdev_use)) return;
  remove_ethdev();
  next_attempt_ = {};
  link_.transition(EthdevUse::Closed);
  publish_changes();
}

/// Closes the ethdev and removes its device from DPDK.
void EthernetPort::remove_ethdev() noexcept {
  stop_ethdev();
  card_memory_.suspend();
  rte_eth_dev_close(config_.ethdev);
  rte_eal_hotplug_remove(device_.bus.c_str(), device_.name.c_str());
}

/// Opens the ethdev again if its device exists.
void EthernetPort::reopen() {
  if (watch_ && watch_->poll().now.index == 0 && !creates_interface(device_.driver)) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_attempt_) return;
  next_attempt_ = now + kReopenInterval;
  try {
    open_again();
  } catch (const SetupError& error) {
    if (std::exchange(last_problem_, error.what()) != error.what())
      notice(LinkNotice::Level::Warning, std::string("The port cannot be opened again yet. ") + error.what());
  }
}

void EthernetPort::open_again() {
  static_cast<void>(SLUICE_INVARIANT(link_.facts().use == EthdevUse::Closed, ethdev_use));
  if (const int error =
          rte_eal_hotplug_add(device_.bus.c_str(), device_.name.c_str(), device_.arguments.c_str());
      error != 0)
    throw port_error(config_, "probe the ethdev", -error);
  InterfaceNews news;
  try {
    if (rte_eth_dev_get_port_by_name(device_.name.c_str(), &config_.ethdev) != 0)
      throw port_error(config_, "find the ethdev", ENODEV);
    const rte_eth_dev_info info = ethdev_info();
    start_ethdev(info);
    if (packet_memory_ == PacketMemory::UntilFreed && transmission_.in_place &&
        !card_memory_.resume(*info.device))
      throw SetupError("Memory cannot be mapped for the card (" + card_memory_.error() + ").");
    if (watch_) news = watch_->poll();
    if (news.deleted) throw SetupError("The interface was deleted again.");
  } catch (const SetupError&) {
    remove_ethdev();
    throw;
  }
  last_problem_.clear();
  notice(LinkNotice::Level::Info,
         "The port is open again on " + (watch_ ? watch_->interface() : device_.name));
  link_.count_reopened();
  link_.announce_again();
  link_.transition(EthdevUse::Open);
  if (watch_)
    follow_interface(news);
  else
    link_.change_mac(address_of_ethdev());
  publish_changes();
}

}  // namespace sluice::rdma::softroce
