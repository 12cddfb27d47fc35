# Counts words and their letters: hashes and regular expressions in an interpreter.
# usage: perl words.pl TIMES
use strict;
use warnings;

my %count;
my $text = join ' ', map { my $n = $_; join '', map { chr(97 + ($n * $_) % 26) } 1 .. 3 + $n % 6 } 1 .. 2000;
for my $time (1 .. $ARGV[0]) {
    $count{$1}++ while $text =~ /(\w+)/g;
    (my $shouted = $text) =~ tr/a-z/A-Z/;
    $count{length $shouted}++;
}
print scalar(keys %count), "\n";
