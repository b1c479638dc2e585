// SPDX-License-Identifier: Apache-2.0
//
// Files of exports_directory: how they are read with the configuration, and how sluicectl's exports are
// saved.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "controlplane/config/changes.h"
#include "controlplane/config/config.h"
#include "controlplane/config/keys.h"

namespace sluice {
namespace {

using Paths = std::vector<std::string>;

const std::string kWritten =
    "# Written for 'sluicectl exports add --save', which replaces the file as a whole. Remove this line to "
    "prevent that.\n";

segment::ExportConfig an_export(const std::string& keys) {
  config::Config known;
  known.authentication_method = "psk";
  known.authentication_hosts.push_back({.name = "host.example", .key_files = {}});
  return config::parse_export("[[export]]\n" + keys, known);
}

segment::ExportConfig removed(const std::string& path) {
  segment::ExportConfig entry = an_export("path = \"" + path + "\"\n");
  entry.in_use = 0;
  return entry;
}

std::string file_with(const std::string& path) {
  return "[[export]]\npath = \"" + path + "\"\nclients = []\n";
}

class ExportFiles : public testing::Test {
 protected:
  ExportFiles() {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    std::filesystem::create_directory(directory());
    configure(file_with("/a") + file_with("/b"));
  }
  ~ExportFiles() override { std::filesystem::remove_all(folder_); }

  std::string main_file() const { return folder_ + "/sluice.toml"; }
  std::string directory() const { return folder_ + "/exports.d"; }
  std::string file(const std::string& name) const { return directory() + '/' + name; }
  void configure(const std::string& text) {
    std::ofstream(main_file()) << "exports_directory = \"" + directory() + "\"\n" + text;
  }
  void write(const std::string& name, const std::string& text) { std::ofstream(file(name)) << text; }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(file(name)).rdbuf();
    return text.str();
  }
  Paths files() const {
    Paths names;
    for (const auto& entry : std::filesystem::directory_iterator(directory()))
      names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  config::Config load() const { return config::load_file(main_file()); }
  Paths paths() const {
    Paths found;
    const config::Config config = load();
    for (const auto& entry : config.block.exports)
      if (entry.in_use != 0) found.emplace_back(entry.path);
    return found;
  }
  std::string defects() const {
    try {
      load();
    } catch (const config::ConfigError& error) {
      return error.what();
    }
    return {};
  }
  void save(const segment::ExportConfig& entry) const { config::save_export(entry, load()); }
  std::string problem_of(const segment::ExportConfig& entry, const config::Config& running) const {
    try {
      config::save_export(entry, running);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return {};
  }
  std::string problem_of(const segment::ExportConfig& entry) const { return problem_of(entry, load()); }
  /// Returns the problem that sluicectl reports for an export that it may not change.
  std::string not_written(const std::string& file, const std::string& path) const {
    return file + " was not written by sluicectl for '" + path +
           "' alone. Edit this file, and run 'sluicectl config reload'.";
  }

  std::string folder_ = "/tmp/sluice-exports-test-XXXXXX";
};

TEST_F(ExportFiles, are_read_in_the_order_of_their_names_as_parts_of_one_configuration) {
  EXPECT_EQ(paths(), (Paths{"/a", "/b"}));
  write("2.toml", file_with("/e"));
  write("10.toml", file_with("/d") + file_with("/c"));
  for (const char* ignored : {".hidden.toml", "x.toml.new", "x.toml~", "README"}) write(ignored, "not TOML");
  std::filesystem::create_directory(file("instance"));
  EXPECT_EQ(paths(), (Paths{"/a", "/b", "/d", "/c", "/e"}));
  EXPECT_EQ(load().file_of_export("/a"), main_file());
  EXPECT_EQ(load().file_of_export("/c"), file("10.toml"));
  EXPECT_EQ(load().file_of_export("/z"), "");
  EXPECT_TRUE(load().has_key("export./c.clients"));
  for (const char* none : {"", "export = []\n"}) {
    configure(none);
    EXPECT_EQ(paths(), (Paths{"/d", "/c", "/e"})) << none;
  }
  std::ofstream(main_file()) << file_with("/a");
  EXPECT_EQ(paths(), Paths{"/a"}) << "a directory that the file does not name is not read";
}

TEST_F(ExportFiles, that_define_one_path_are_refused_and_both_are_named) {
  write("x.toml", "\n" + file_with("/a"));
  EXPECT_EQ(defects(),
            file("x.toml") + ":2: There is an export '/a' already in " + main_file() + ". Remove one.\n");
  configure("");
  EXPECT_EQ(defects(), "");
  write("y.toml", file_with("/c") + file_with("/a"));
  EXPECT_EQ(defects(),
            file("y.toml") + ":4: There is an export '/a' already in " + file("x.toml") + ". Remove one.\n");
  write("y.toml", file_with("/a/c"));
  EXPECT_EQ(defects(), file("y.toml") + ":1: The exports '/a/c' and '/a' in " + file("x.toml") +
                           " overlap. Rename one, so that neither lies in the other.\n");
}

TEST_F(ExportFiles, have_defects_with_their_file_and_line) {
  const auto defect_of = [this](const std::string& text) {
    write("x.toml", text);
    return defects();
  };
  const std::string at = file("x.toml") + ":";
  EXPECT_EQ(defect_of("# one\n[[export\n").find(at + "2: "), 0u);
  EXPECT_EQ(defect_of("log_level = \"info\"\n" + file_with("/c")),
            at + "1: The key 'log_level' is not allowed here. Files of exports_directory have [[export]] "
                 "only.\n");
  EXPECT_NE(defect_of("[[export]]\npath = \"/c\"\nclients = []\nquota = 3\n")
                .find(at + "4: The key 'quota' is unknown. Allowed here are "),
            std::string::npos);
  EXPECT_EQ(defect_of("[[export]]\npath = \"/c\"\n"),
            file("x.toml") +
                ": The [[export]] '/c' has no clients. Name the addresses that may mount it, or write "
                "'clients = []' if all may.\n");
  EXPECT_NE(
      defect_of("[[export]]\npath = \"/c\"\nclients = []\nhosts = [\"h\"]\n").find(at + "4: hosts names 'h'"),
      std::string::npos);
  for (const char* none : {"", "# nothing\n", "export = []\n", "export = 3\n"})
    EXPECT_EQ(defect_of(none).find(at), 0u) << none;
  EXPECT_EQ(defect_of(""),
            at + "1: The file has no [[export]], so it may have been truncated. Complete or remove it.\n");
  std::string many;
  for (int i = 0; i < 31; ++i) many += file_with("/x" + std::to_string(i));
  EXPECT_EQ(defect_of(many), main_file() + ":2: export has to be a list of at most 32 tables: [[export]].\n");
  EXPECT_EQ(defect_of("\xff\n").find("The configuration cannot be read: " + at + "1: "), 0u);
  configure("[[upstream]]\nname = \"u\"\naddress = \"192.0.2.1\"\nprograms = [\"nfs3\"]\n");
  EXPECT_EQ(defect_of(file_with("/c")),
            main_file() + ":2: An upstream has nfs3, and so has [[export]]. Remove one of them.\n");
}

TEST_F(ExportFiles, that_cannot_be_read_are_refused) {
  const auto refused = [this](const std::string& what) {
    return defects().find("The configuration cannot be read: " + what) == 0;
  };
  std::filesystem::create_directory(file("x.toml"));
  EXPECT_TRUE(refused(file("x.toml") + " is a directory")) << defects();
  std::filesystem::remove(file("x.toml"));
  std::filesystem::create_symlink("nowhere", file("x.toml"));
  EXPECT_TRUE(refused("Cannot read " + file("x.toml") + " (No such file")) << defects();
  std::filesystem::remove_all(directory());
  EXPECT_TRUE(refused("Cannot read the directory " + directory() + " (No such file")) << defects();
  std::ofstream(directory()) << "";
  EXPECT_TRUE(refused("Cannot read the directory " + directory() + " (Not a directory")) << defects();
}

TEST_F(ExportFiles, are_named_like_units_of_systemd) {
  configure("");
  const std::pair<const char*, const char*> names[] = {{"/export", "export.toml"},
                                                       {"/srv/a_b/c.d:1", "srv-a_b-c.d:1.toml"},
                                                       {"/a-b", "a\\x2db.toml"},
                                                       {"/.hidden", "\\x2ehidden.toml"},
                                                       {"/\xc3\xa9 x", "\\xc3\\xa9\\x20x.toml"}};
  for (const auto& [path, name] : names) {
    save(an_export("path = \"" + std::string(path) + "\"\n"));
    EXPECT_TRUE(std::filesystem::exists(file(name))) << name;
    EXPECT_EQ(load().file_of_export(path), file(name));
    save(removed(path));
    EXPECT_EQ(files(), Paths{}) << name;
  }
  save(an_export("path = \"/\"\n"));
  EXPECT_EQ(files(), Paths{"-.toml"});
}

TEST_F(ExportFiles, that_are_written_are_what_is_read) {
  configure(
      "[host_authentication]\nmethod = \"psk\"\n[[host_authentication.host]]\nname = \"host.example\"\n"
      "key_files = [\"/k\"]\n");
  const std::string keys =
      "path = \"/c\\\"\xc3\xa9\"\nread_only = true\nroot_squash = false\nall_squash = true\nanonuid = "
      "4294967295\nanongid = 7\nquota_mib = 9\nclients = [\"192.0.2.0/24\", \"2001:db8::/32\", "
      "\"10.1.2.3\"]\nhosts = [\"host.example\"]\n";
  config::Config running;
  running.file = main_file();
  running.exports_directory = directory();
  const config::Config saved = config::save_export(an_export(keys), running);
  EXPECT_EQ(config::describe(saved)["export"][0], config::describe_entry(an_export(keys)));
  EXPECT_EQ(saved.file_of_export("/c\"\xc3\xa9"), file("c\\x22\\xc3\\xa9.toml"));
  const std::string text = text_of("c\\x22\\xc3\\xa9.toml");
  EXPECT_EQ(text.find(kWritten + "[[export]]\n"), 0u) << text;
  const config::ExportFile read = config::read_export_files(directory()).at(0);
  EXPECT_EQ(read.text, text);
  EXPECT_EQ(config::save_export(an_export(keys), running).named, saved.named);
  EXPECT_EQ(text_of("c\\x22\\xc3\\xa9.toml"), text);
}

TEST_F(ExportFiles, that_are_cut_short_are_refused) {
  configure("");
  save(an_export("path = \"/c\"\nread_only = true\nquota_mib = 12\nclients = [\"192.0.2.0/24\"]\n"));
  const std::string whole = text_of("c.toml");
  const Json shown = config::describe(load());
  for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) {
    write("c.toml", whole.substr(0, bytes));
    EXPECT_EQ(defects().find(file("c.toml") + ":"), 0u) << whole.substr(0, bytes) << '\n' << defects();
  }
  // Only the final newline may be missing.
  write("c.toml", whole.substr(0, whole.size() - 1));
  EXPECT_EQ(config::describe(load()), shown);
}

TEST_F(ExportFiles, have_one_export_of_sluicectl_each) {
  save(an_export("path = \"/c\"\n"));
  save(an_export("path = \"/d\"\n"));
  EXPECT_EQ(files(), (Paths{"c.toml", "d.toml"}));
  EXPECT_EQ(paths(), (Paths{"/a", "/b", "/c", "/d"}));
  save(an_export("path = \"/c\"\nread_only = true\n"));
  EXPECT_EQ(paths(), (Paths{"/a", "/b", "/c", "/d"}));
  EXPECT_EQ(load().block.exports[2].read_only, 1u);
  save(removed("/c"));
  EXPECT_EQ(files(), Paths{"d.toml"});
  EXPECT_EQ(paths(), (Paths{"/a", "/b", "/d"}));
}

TEST_F(ExportFiles, of_the_administrator_are_not_changed) {
  const std::string two = kWritten + file_with("/two") + file_with("/three");
  const std::string taken_over = file_with("/mine");
  write("two.toml", two);
  write("mine.toml", taken_over);
  write("other.toml", file_with("/elsewhere"));
  for (const auto& entry : {an_export("path = \"/a\"\n"), removed("/a")})
    EXPECT_EQ(problem_of(entry), not_written(main_file(), "/a"));
  for (const auto& entry : {an_export("path = \"/two\"\n"), removed("/two")})
    EXPECT_EQ(problem_of(entry), not_written(file("two.toml"), "/two"));
  for (const auto& entry : {an_export("path = \"/mine\"\n"), removed("/mine")})
    EXPECT_EQ(problem_of(entry), not_written(file("mine.toml"), "/mine"));
  for (const auto& entry : {an_export("path = \"/elsewhere\"\n"), removed("/elsewhere")})
    EXPECT_EQ(problem_of(entry), not_written(file("other.toml"), "/elsewhere"));
  EXPECT_EQ(problem_of(an_export("path = \"/other\"\n")), not_written(file("other.toml"), "/other"));
  EXPECT_EQ(text_of("two.toml"), two);
  EXPECT_EQ(text_of("mine.toml"), taken_over);
  EXPECT_EQ(files(), (Paths{"mine.toml", "other.toml", "two.toml"}));
}

TEST_F(ExportFiles, are_readable_by_the_group_and_no_other_is_left) {
  write("c.toml.new", "of a process that was killed");
  save(an_export("path = \"/c\"\n"));
  struct stat found {};
  ASSERT_EQ(::stat(file("c.toml").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07737, 0600u) << "the umask may remove the group's access";
  EXPECT_EQ(files(), Paths{"c.toml"});
}

TEST_F(ExportFiles, of_exports_that_are_removed_have_to_exist_or_the_exports_to_be_in_force) {
  config::Config running = load();
  EXPECT_EQ(problem_of(removed("/z"), running),
            "There is no export '/z'. 'sluicectl exports' lists the exports.");
  EXPECT_EQ(problem_of(segment::ExportConfig{}, running),
            "There is no export ''. 'sluicectl exports' lists the exports.");
  running.block.exports[2] = an_export("path = \"/z\"\n");
  EXPECT_EQ(problem_of(removed("/z"), running), "") << "it was added, and not saved";
  save(an_export("path = \"/c\"\n"));
  EXPECT_EQ(problem_of(removed("/c"), running), "") << "it was removed, and not saved";
  EXPECT_EQ(files(), Paths{});
}

TEST_F(ExportFiles, are_not_written_if_nothing_could_start_with_them) {
  const config::Config running = load();
  configure(file_with("/new"));
  const std::string overlap = problem_of(an_export("path = \"/new/c\"\n"), running);
  EXPECT_NE(overlap.find("The exports '/new/c' and '/new' in " + main_file() + " overlap"), std::string::npos)
      << overlap;
  configure("[transport]\ncredits = 0\n");
  EXPECT_NE(problem_of(an_export("path = \"/c\"\n"), running).find("sluice.toml:3: credits has to be"),
            std::string::npos);
  configure("");
  write("x.toml", "[[export]]\n");
  EXPECT_EQ(problem_of(an_export("path = \"/c\"\n"), running).find(file("x.toml") + ":1: path is needed"),
            0u);
  std::filesystem::remove(file("x.toml"));
  std::ofstream(main_file()) << "";
  EXPECT_EQ(problem_of(an_export("path = \"/c\"\n"), running),
            "The key exports_directory in " + main_file() +
                " has changed since it was read. Run 'sluicectl config reload' to apply it.");
  EXPECT_EQ(files(), Paths{});
}

TEST_F(ExportFiles, that_cannot_be_written_stay_as_they_were) {
  save(an_export("path = \"/c\"\n"));
  const std::string before = text_of("c.toml");
  // A folder of that name fails the write for root as well.
  std::filesystem::create_directories(file("c.toml.new/x"));
  EXPECT_EQ(problem_of(an_export("path = \"/c\"\nread_only = true\n")),
            "Cannot write " + file("c.toml") + " (File exists). Let the control plane's user write to " +
                directory() + ", and free space there.");
  EXPECT_EQ(text_of("c.toml"), before);
  const std::string longest = '/' + std::string(254, 'x');
  EXPECT_EQ(problem_of(an_export("path = \"" + longest + "\"\n")).find("Cannot write "), 0u);
}

TEST_F(ExportFiles, of_a_former_release_are_refused_with_what_to_do) {
  std::ofstream(main_file()) << "\nsaved_changes = \"/var/lib/sluice/saved.toml\"\n";
  EXPECT_EQ(
      defects(),
      main_file() +
          ":2: The file of saved_changes is no longer read. Move each [[export]] in it, with its clients, "
          "to a file *.toml in exports_directory, delete the exports in its list removed_exports from the "
          "configuration, and remove this key.\n");
  std::ofstream(main_file()) << "exports_directory = \"exports.d\"\n";
  EXPECT_EQ(
      defects(),
      main_file() + ":1: exports_directory has to be the path of a directory, from '/', or \"\" for none.\n");
}

TEST_F(ExportFiles, are_read_again_by_a_reload) {
  const config::Config before = load();
  save(an_export("path = \"/c\"\n"));
  EXPECT_EQ(config::compare(before, load()).live, Paths{"export./c"});
  const config::Config live = config::live_part(before, load());
  EXPECT_EQ(live.file_of_export("/c"), file("c.toml"));
  configure("");
  const config::Config last = config::live_part(live, load());
  std::filesystem::remove(file("c.toml"));
  EXPECT_NE(config::unsaid_removals(last, load()).find("the last export would be removed"),
            std::string::npos);
  std::ofstream(main_file()) << "exports_directory = \"\"\n" + file_with("/a");
  EXPECT_EQ(config::compare(before, load()).live, (Paths{"export./b", "exports_directory"}));
  EXPECT_EQ(config::live_part(before, load()).exports_directory, "");
}

}  // namespace
}  // namespace sluice
