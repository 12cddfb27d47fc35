<CsoundSynthesizer>
<CsInstruments>
sr = 44100
ksmps = 32
nchnls = 2
0dbfs = 1
instr 1
  kenv linseg 0, 0.1, 1, p3 - 0.2, 1, 0.1, 0
  aone vco2 0.2 * kenv, p4
  atwo foscili 0.2 * kenv, p4 * 1.01, 1, 1.4, 2
  afil moogladder aone + atwo, 800 + 600 * kenv, 0.4
  aleft, aright freeverb afil, afil, 0.8, 0.4
  outs aleft, aright
endin
</CsInstruments>
<CsScore>
i 1 0 100000 110
i 1 0 100000 165
i 1 0 100000 220
i 1 0 100000 277
</CsScore>
</CsoundSynthesizer>
