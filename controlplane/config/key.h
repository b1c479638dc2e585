// SPDX-License-Identifier: Apache-2.0
//
// A row of the table of keys: a key with the functions that read, show and copy its member. Each function
// below makes a row of one kind. For keys.cc only, because the rows instantiate templates for each key. Used
// at setup and reload; single-threaded.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "controlplane/config/keys.h"
#include "controlplane/config/readers.h"
#include "dataplane/segment/config_ranges.h"

namespace sluice::config {

/// A key of `Owner`, which is Config, the configuration block, or an entry of a list.
template <typename Owner>
struct Key {
  KeyRow row;
  void (*read)(Checker& check, const toml::table& table, const KeyRow& row, Owner& owner);
  Json (*show)(const KeyRow& row, const Owner& owner);  ///< returns null if the key has no value
  void (*copy)(Owner& to, const Owner& from);
};

/// Access to a member, or to a member of a member.
template <auto... Members>
struct At {
  template <typename Owner>
  static auto& of(Owner& owner) {
    return (owner.*....*Members);
  }
};

template <typename Owner, typename Value>
Owner owner_of(Value Owner::*);
template <auto... Members>
struct OwnerOfFirst;
template <auto First, auto... Rest>
struct OwnerOfFirst<First, Rest...> {
  using Type = decltype(owner_of(First));
};
template <auto... Members>
using OwnerOf = typename OwnerOfFirst<Members...>::Type;

template <typename Access, typename Owner>
void copy_member(Owner& to, const Owner& from) {
  if constexpr (std::is_array_v<std::remove_reference_t<decltype(Access::of(to))>>)
    std::memcpy(Access::of(to), Access::of(from), sizeof Access::of(to));
  else
    Access::of(to) = Access::of(from);
}

/// Returns the range of a member of the block. A key that differs from the range's is a compile-time error.
template <typename Owner>
constexpr Limits limits_of(std::uint32_t Owner::*member, std::string_view key) {
  for (const segment::IntegerRange<Owner>& range : segment::ranges_of<Owner>())
    if (range.member == member && std::string_view(range.name).ends_with(key))
      return {range.least, range.most};
  throw "The member has no range in config_ranges.h.";
}

template <typename Access, std::uint64_t Unit, typename Owner>
void read_integer(Checker& check, const toml::table& table, const KeyRow& row, Owner& owner) {
  auto& member = Access::of(owner);
  auto value = static_cast<std::uint64_t>(member) / Unit;
  check.integer(table, row.name, value, row.limits.least, row.limits.most);
  member = static_cast<std::remove_cvref_t<decltype(member)>>(value * Unit);
}

template <typename Access, std::uint64_t Unit, typename Owner>
Json show_integer(const KeyRow&, const Owner& owner) {
  return static_cast<std::uint64_t>(Access::of(owner)) / Unit;
}

/// An integer, which the member counts in `Unit`.
template <std::uint64_t Unit, auto... Members>
constexpr Key<OwnerOf<Members...>> scaled(const char* name, Limits limits, Scope scope,
                                          const char* sentence) {
  using Access = At<Members...>;
  using Owner = OwnerOf<Members...>;
  return {{.name = name, .kind = Kind::Integer, .limits = limits, .scope = scope, .sentence = sentence},
          read_integer<Access, Unit, Owner>,
          show_integer<Access, Unit, Owner>,
          copy_member<Access, Owner>};
}

template <auto... Members>
constexpr auto integer(const char* name, Limits limits, Scope scope, const char* sentence) {
  return scaled<1, Members...>(name, limits, scope, sentence);
}

/// An integer whose range both planes check (config_ranges.h).
template <auto First, auto... Rest>
constexpr auto integer(const char* name, Scope scope, const char* sentence) {
  const Limits limits = [&] {
    if constexpr (sizeof...(Rest) == 0)
      return limits_of(First, name);
    else
      return limits_of(Rest..., name);
  }();
  return scaled<1, First, Rest...>(name, limits, scope, sentence);
}

/// An integer that has no value unless the file names it. The member is above the range then.
template <auto... Members>
constexpr auto optional_integer(const char* name, Limits limits, const char* preset, Scope scope,
                                const char* sentence) {
  using Owner = OwnerOf<Members...>;
  auto key = scaled<1, Members...>(name, limits, scope, sentence);
  key.row.preset = preset;
  key.show = [](const KeyRow& row, const Owner& owner) {
    const std::uint64_t value = At<Members...>::of(owner);
    return value <= row.limits.most ? Json(value) : Json();
  };
  return key;
}

/// An integer that is rounded up to a power of two.
template <auto... Members>
constexpr auto power_of_two(const char* name, Scope scope, const char* sentence) {
  using Owner = OwnerOf<Members...>;
  auto key = integer<Members...>(name, scope, sentence);
  key.row.is_power_of_two = true;
  key.read = [](Checker& check, const toml::table& table, const KeyRow& row, Owner& owner) {
    read_integer<At<Members...>, 1>(check, table, row, owner);
    At<Members...>::of(owner) = std::bit_ceil(At<Members...>::of(owner));
  };
  return key;
}

template <auto... Members>
constexpr auto mebibytes(const char* name, Limits limits, Scope scope, const char* sentence) {
  return scaled<1u << 20, Members...>(name, limits, scope, sentence);
}

template <auto... Members>
constexpr Key<OwnerOf<Members...>> flag(const char* name, Scope scope, const char* sentence) {
  using Access = At<Members...>;
  using Owner = OwnerOf<Members...>;
  return {{.name = name, .kind = Kind::Boolean, .scope = scope, .sentence = sentence},
          [](Checker& check, const toml::table& table, const KeyRow& row, Owner& owner) {
            check.boolean(table, row.name, Access::of(owner));
          },
          [](const KeyRow&, const Owner& owner) { return Json(Access::of(owner) != 0); },
          copy_member<Access, Owner>};
}

/// Copies a text into its member, which has room for it.
inline void assign(std::string& member, const std::string& text) {
  member = text;
}
template <std::size_t N>
void assign(char (&member)[N], const std::string& text) {
  std::memcpy(member, text.c_str(), text.size() + 1);
}

template <typename Access, bool IsPath, typename Owner>
void read_text(Checker& check, const toml::table& table, const KeyRow& row, Owner& owner) {
  std::string value = Access::of(owner);
  std::vector<std::string> words;
  for (const Word& word : row.words) words.emplace_back(word.text);
  if constexpr (IsPath)
    check.path(table, row.name, value, row.limits.most);
  else
    check.text(table, row.name, value, row.limits.most, words);
  assign(Access::of(owner), value);
}

template <bool IsPath, auto... Members>
constexpr Key<OwnerOf<Members...>> any_text(const char* name, std::uint64_t most, Scope scope,
                                            const char* sentence) {
  using Access = At<Members...>;
  using Owner = OwnerOf<Members...>;
  return {{.name = name, .kind = Kind::Text, .limits = {0, most}, .scope = scope, .sentence = sentence},
          read_text<Access, IsPath, Owner>,
          [](const KeyRow&, const Owner& owner) { return Json(Access::of(owner)); },
          copy_member<Access, Owner>};
}

template <auto... Members>
constexpr auto text(const char* name, std::uint64_t most, Scope scope, const char* sentence) {
  return any_text<false, Members...>(name, most, scope, sentence);
}

/// A text that names a file.
template <auto... Members>
constexpr auto path(const char* name, std::uint64_t most, Scope scope, const char* sentence) {
  auto key = any_text<true, Members...>(name, most, scope, sentence);
  key.row.range = "absolute path";
  return key;
}

inline constexpr std::uint64_t kMaxWordBytes = 16;

template <typename Value>
const char* text_of(std::span<const Word> words, Value value) {
  for (const Word& word : words)
    if (word.value == static_cast<std::uint32_t>(value)) return word.text;
  return "?";
}

template <typename Access, typename Owner>
void read_choice(Checker& check, const toml::table& table, const KeyRow& row, Owner& owner) {
  auto& member = Access::of(owner);
  std::string value = text_of(row.words, member);
  std::vector<std::string> words;
  for (const Word& word : row.words) words.emplace_back(word.text);
  check.text(table, row.name, value, row.limits.most, words);
  for (const Word& word : row.words)
    if (value == word.text) member = static_cast<std::remove_cvref_t<decltype(member)>>(word.value);
}

/// A text that is one of `words`. A string has the text itself; other members have the value of the word.
template <auto... Members>
constexpr Key<OwnerOf<Members...>> choice(const char* name, std::span<const Word> words, Scope scope,
                                          const char* sentence) {
  using Access = At<Members...>;
  using Owner = OwnerOf<Members...>;
  if constexpr (std::is_same_v<decltype(Access::of(std::declval<Owner&>())), std::string&>) {
    auto key = text<Members...>(name, kMaxWordBytes, scope, sentence);
    key.row.words = words;
    return key;
  } else {
    return {{.name = name,
             .kind = Kind::Text,
             .limits = {0, kMaxWordBytes},
             .words = words,
             .scope = scope,
             .sentence = sentence},
            read_choice<Access, Owner>,
            [](const KeyRow& row, const Owner& owner) { return Json(text_of(row.words, Access::of(owner))); },
            copy_member<Access, Owner>};
  }
}

/// The texts of `pnfs` and `referrals`.
inline constexpr Word kWithheld[] = {{"hide", 1}, {"pass", 0}};

/// A list of addresses and prefixes: an array, and the number of its elements that are in use.
template <typename List, typename Count, typename Owner>
constexpr Key<Owner> prefixes(const char* name, Scope scope, const char* sentence) {
  constexpr std::size_t kMost =
      std::tuple_size_v<std::remove_cvref_t<decltype(List::of(std::declval<Owner&>()))>>;
  return {{.name = name, .kind = Kind::List, .limits = {0, kMost}, .scope = scope, .sentence = sentence},
          [](Checker& check, const toml::table& table, const KeyRow& row, Owner& owner) {
            Count::of(owner) = read_prefixes(check, table, row.name, List::of(owner));
          },
          [](const KeyRow&, const Owner& owner) {
            Json list = Json::array();
            for (std::uint32_t i = 0; i < Count::of(owner); ++i) list.push_back(to_text(List::of(owner)[i]));
            return list;
          },
          [](Owner& to, const Owner& from) {
            Count::of(to) = Count::of(from);
            List::of(to) = List::of(from);
          }};
}

template <typename Owner>
using Keys = std::span<const Key<Owner>>;

template <typename Owner>
void read_keys(Checker& check, const toml::table& table, Keys<Owner> keys, Owner& owner) {
  for (const Key<Owner>& key : keys) key.read(check, table, key.row, owner);
}

template <typename Owner>
Json describe_keys(Keys<Owner> keys, const Owner& owner) {
  Json table = Json::object();
  for (const Key<Owner>& key : keys)
    if (Json value = key.show(key.row, owner); !value.is_null()) table[key.row.name] = std::move(value);
  return table;
}

/// Copies the keys with this scope.
template <typename Owner>
void copy_keys(Keys<Owner> keys, Scope scope, Owner& to, const Owner& from) {
  for (const Key<Owner>& key : keys)
    if (key.row.scope == scope) key.copy(to, from);
}

/// A table that the file has once. Its name is empty for the top level.
struct Section {
  const char* name;
  std::variant<Keys<Config>, Keys<segment::ConfigBlock>, Keys<policy::ClientClass>> keys;
};
/// Returns the tables in the order of the reference page.
std::span<const Section> sections();
/// Returns the keys that [policy] and [[client_class]] share.
Keys<policy::ClientClass> class_limits();

/// A list of tables and the keys of its entries. [[client_class]] also has the keys of class_limits().
struct ListTable {
  const char* name;
  std::variant<Keys<segment::ExportConfig>, Keys<HostEntry>, Keys<policy::ClientClass>,
               Keys<segment::UpstreamConfig>>
      keys;
};
/// Returns the lists in the order of the reference page.
std::span<const ListTable> list_tables();

}  // namespace sluice::config
