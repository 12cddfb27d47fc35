// Voices through a reverb, faster than real time.
SawOsc s[8];
LPF f => NRev r => dac;
for (0 => int i; i < 8; i++) { s[i] => f; 110.0 * (i + 1) => s[i].freq; 0.05 => s[i].gain; }
while (true) { Math.random2f(300, 3000) => f.freq; 100::ms => now; }
